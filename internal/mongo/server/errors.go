package server

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

// A Class is what an error says about the write that it answers (docs/internals/design.md §4.5). Few
// say anything. The driver sends a write again when its connection broke, and returns the error of
// the last attempt: the first may have been applied. A mongos turns its own network faults into
// ok: 0. So every error that is not listed here is unknown, and is cleaned up.
type Class int

// The classes.
const (
	Unknown      Class = iota // it may have been applied, or may be applied later
	DuplicateID               // E11000 on _id: there is a document under the key
	Refused                   // by the server, because of the command or its sender: not applied
	NoJournal                 // j: true where there is no journal: not applied
	NoCommand                 // the server does not know the command: not applied
	TooLarge                  // the document would be too large: not applied
	NotSent                   // no server or no connection was found for it
	Disconnected              // not sent, and no later one will be: the mongo.Client was disconnected
)

// Sent reports whether the write of an error of this class may have left this process.
func (c Class) Sent() bool { return c != NotSent && c != Disconnected }

// Troubled reports whether an election may have caused an error of this class.
func (c Class) Troubled() bool { return c == Unknown || c == NotSent }

// refusals has the codes that a server answers before it writes anything, and with which it
// answers no retry whose first attempt was applied: they depend only on the command and its
// sender, or come after the server has looked for the transaction number.
//
// The refusals of an overloaded server are not among them: 433, 449, 450 and 462
// (IngressRequestRateLimitExceeded). They come before the server looks for the transaction
// number, and an overloaded server also drops connections, so the first attempt may have been
// applied. The error does not tell: for the label NoWritesPerformed the driver returns the
// error of an earlier attempt, but not if that was the network's.
var refusals = []int{
	2,       // BadValue
	9,       // FailedToParse
	13,      // Unauthorized
	14,      // TypeMismatch
	18,      // AuthenticationFailed
	20,      // IllegalOperation: transaction numbers on a server that has none
	26,      // NamespaceNotFound
	40,      // ConflictingUpdateOperators
	61,      // ShardKeyNotFound
	67,      // CannotCreateIndex
	72,      // InvalidOptions
	73,      // InvalidNamespace
	85,      // IndexOptionsConflict
	86,      // IndexKeySpecsConflict
	121,     // DocumentValidationFailure
	166,     // CommandNotSupportedOnView
	303,     // FeatureNotSupported, of Amazon DocumentDB; MongoDB's 303 answers no write
	322,     // APIVersionError
	323,     // APIStrictError
	324,     // APIDeprecationError
	371,     // UserWritesBlocked: checked at the write itself, after the transaction number
	40415,   // unknown field
	8000,    // Atlas: not allowed
	13297,   // DatabaseDifferCase
	7314600, // no retryable findAndModify on a time series
}

// tooLarge has the codes for a document that would be too large.
var tooLarge = []int{
	10334,   // BSONObjectTooLarge: of the command, and of an update that grows it by more than 16 kB beyond the limit
	17419,   // of an update that grows it by less
	17420,   // of an upsert
	7655103, // the same, in later versions
}

const (
	duplicateKey    = 11000
	commandNotFound = 59
	badValue        = 2
)

// ClassOf sorts the error of one command. An error that combines several, as a bulk's may, is
// Unknown.
func ClassOf(err error) Class {
	if err == nil {
		return Unknown
	}
	// These three come from looking for a server and a connection, before the first attempt.
	// Before a later attempt the driver returns the earlier attempt's error instead.
	if errors.Is(err, mongo.ErrClientDisconnected) {
		return Disconnected
	}
	if errors.As(err, new(topology.ServerSelectionError)) {
		return NotSent
	}
	if errors.As(err, new(topology.WaitQueueTimeoutError)) {
		return NotSent
	}
	code, message, raw, ok := single(err)
	switch {
	case !ok:
		return Unknown
	case code == duplicateKey && onID(raw, message):
		return DuplicateID
	case code == duplicateKey:
		return Refused // by a unique index that was added to the collection
	case code == commandNotFound:
		return NoCommand
	case code == badValue && noJournal(message):
		return NoJournal
	case slices.Contains(tooLarge, code):
		return TooLarge
	case slices.Contains(refusals, code):
		return Refused
	}
	return Unknown
}

// NotApplied joins err with store.ErrNotApplied, and with store.ErrDisconnected if it is
// of that class.
func NotApplied(err error) error {
	if ClassOf(err) == Disconnected {
		return fmt.Errorf("%w (%w; %w)", err, store.ErrDisconnected, store.ErrNotApplied)
	}
	return fmt.Errorf("%w (%w)", err, store.ErrNotApplied)
}

// Classified joins err with what it surely says: store.ErrNotApplied, ErrDisconnected or ErrTooLarge.
func Classified(err error) error {
	switch ClassOf(err) {
	case Refused, NoJournal, NoCommand, NotSent, Disconnected:
		return NotApplied(err)
	case TooLarge:
		return fmt.Errorf("%w: %w", store.ErrTooLarge, err)
	}
	return err
}

// single returns the server's one answer that err is. A write concern error says that the write
// was applied on this server, so an error that contains one is not single.
func single(err error) (code int, message string, raw bson.Raw, ok bool) {
	var e mongo.CommandError
	if errors.As(err, &e) {
		return int(e.Code), e.Message, e.Raw, len(e.Labels) == 0 || !e.HasErrorLabel("RetryableWriteError")
	}
	var w mongo.WriteException
	if errors.As(err, &w) && w.WriteConcernError == nil && len(w.WriteErrors) == 1 {
		return w.WriteErrors[0].Code, w.WriteErrors[0].Message, w.WriteErrors[0].Raw, true
	}
	return 0, "", nil, false
}

// onID reports whether a duplicate key error is about _id. It goes by the fields that
// name the index's keys (4.4 and later), or by the message. If neither names an index, it
// is about _id, because a collection of locks has no other unique index.
func onID(raw bson.Raw, message string) bool {
	for _, field := range []string{"keyPattern", "keyValue"} {
		if keys, ok := raw.Lookup(field).DocumentOK(); ok {
			elements, err := keys.Elements()
			return err == nil && len(elements) == 1 && elements[0].Key() == "_id"
		}
	}
	// Cut only as far as the index's name: the key follows, and may be any text.
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
