// Package mongoerr sorts the driver's errors by what they say about a write
// (docs/design.md §4, "What an error means"). Few say anything: the error that the
// driver returns may be its second attempt's, and a mongos turns its own network
// faults into ok: 0. So what is not listed here is unknown, and is cleaned up.
package mongoerr

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongolock/mongolock/store"
)

// A Class is what an error says about the write that it answers.
type Class int

// The classes.
const (
	Unknown     Class = iota // it may have been applied, or may be yet
	DuplicateID              // E11000 on _id: there is a document under the key
	Refused                  // by the server, for what it asks or for who asks: not applied
	NoJournal                // j: true where there is no journal: not applied
	NoCommand                // the server does not know the command: not applied
	TooLarge                 // the document would be too large: not applied
	NotSent                  // no server could be found for it
)

// What a server answers before it touches anything.
var refusals = []int{
	2,     // BadValue
	9,     // FailedToParse
	13,    // Unauthorized
	14,    // TypeMismatch
	18,    // AuthenticationFailed
	20,    // IllegalOperation: transaction numbers on a server that has none
	26,    // NamespaceNotFound
	40,    // ConflictingUpdateOperators
	61,    // ShardKeyNotFound
	67,    // CannotCreateIndex
	72,    // InvalidOptions
	73,    // InvalidNamespace
	85,    // IndexOptionsConflict
	86,    // IndexKeySpecsConflict
	121,   // DocumentValidationFailure
	166,   // CommandNotSupportedOnView
	303,   // FeatureNotSupported
	322,   // APIVersionError
	323,   // APIStrictError
	324,   // APIDeprecationError
	40415, // unknown field
	8000,  // Atlas: not allowed
	13297, // DatabaseDifferCase
}

const (
	duplicateKey    = 11000
	commandNotFound = 59
	badValue        = 2
	objectTooLarge  = 10334
)

// ClassOf sorts an error of one command. Of several in one (a bulk's) it sorts
// nothing: Unknown.
func ClassOf(err error) Class {
	if err == nil {
		return Unknown
	}
	if _, ok := errors.AsType[topology.ServerSelectionError](err); ok {
		// Of the first attempt: for a later one the driver returns the earlier
		// attempt's error instead.
		return NotSent
	}
	if errors.Is(err, mongo.ErrClientDisconnected) {
		return NotSent // it too comes of looking for a server
	}
	code, message, raw, ok := single(err)
	switch {
	case !ok:
		return Unknown
	case code == duplicateKey && onID(raw, message):
		return DuplicateID
	case code == duplicateKey:
		return Refused // by somebody's own unique index
	case code == commandNotFound:
		return NoCommand
	case code == badValue && noJournal(message):
		return NoJournal
	case code == objectTooLarge:
		return TooLarge
	case slices.Contains(refusals, code):
		return Refused
	}
	return Unknown
}

// NotApplied says of an error that nothing was applied.
func NotApplied(err error) error { return fmt.Errorf("%w (%w)", err, store.ErrNotApplied) }

// Mark joins err with what it surely says: store.ErrNotApplied, or ErrTooLarge.
func Mark(err error) error {
	switch ClassOf(err) {
	case Refused, NoJournal, NoCommand, NotSent:
		return NotApplied(err)
	case TooLarge:
		return fmt.Errorf("%w: %w", store.ErrTooLarge, err)
	}
	return err
}

// HasCode reports whether err is a server's with that code.
func HasCode(err error, code int) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && server.HasErrorCode(code)
}

// single is the one verdict in err. A write concern error says that the write
// *was* applied here, so an error with one in it is none.
func single(err error) (code int, message string, raw bson.Raw, ok bool) {
	if e, is := errors.AsType[mongo.CommandError](err); is {
		return int(e.Code), e.Message, e.Raw, len(e.Labels) == 0 || !e.HasErrorLabel("RetryableWriteError")
	}
	if e, is := errors.AsType[mongo.WriteException](err); is && e.WriteConcernError == nil && len(e.WriteErrors) == 1 {
		return e.WriteErrors[0].Code, e.WriteErrors[0].Message, e.WriteErrors[0].Raw, true
	}
	return 0, "", nil, false
}

// onID reports whether a duplicate key error is about _id: by the fields that name
// the index's keys (4.4 and later), by the message, or, where neither names an
// index, because a collection of locks has no other unique one.
func onID(raw bson.Raw, message string) bool {
	for _, field := range []string{"keyPattern", "keyValue"} {
		if keys, ok := raw.Lookup(field).DocumentOK(); ok {
			elements, err := keys.Elements()
			return err == nil && len(elements) == 1 && elements[0].Key() == "_id"
		}
	}
	// Not further than to the index's name: what follows is the key, anybody's text.
	_, rest, named := strings.Cut(message, " index: ")
	if !named {
		return true
	}
	index, _, _ := strings.Cut(rest, " ")
	return index == "_id_" || strings.HasSuffix(index, ".$_id_") || index == "_id"
}

// noJournal reports whether a bad value was the j of the write concern: "cannot
// use 'j' option when a host does not have journaling enabled".
func noJournal(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "journal") &&
		(strings.Contains(m, "'j'") || strings.Contains(m, "j option") || strings.Contains(m, "j:"))
}
