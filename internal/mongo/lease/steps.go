// Package lease has the steps of a store of leases on MongoDB that do not depend on the
// layout of its documents. It serves store/mongostore, which keeps a document for each key, and
// package doclock, which keeps a lock inside a document of the application. The protocol is
// that of docs/internals/design.md §4.
//
// It is a library of verbs. Each store has commands of its own, and says which one comes next;
// this package says what an answer means.
package lease

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A Step names the purpose of a command: its row in the table of docs/internals/design.md §4.4.
type Step string

// The steps.
const (
	Acquire  Step = "acquire"
	TakeOver Step = "take over" // compare-and-swap if no holder is live
	Offer    Step = "offer"     // take a key that is offered
	Join     Step = "join"
	Wait     Step = "wait"     // join the line
	Refresh  Step = "refresh"  // say that one still waits
	StepOut  Step = "step out" // leave the line
	Confirm  Step = "confirm"
	Correct  Step = "correct"
	HandOver Step = "hand over"
	Renew    Step = "renew"
	Release  Step = "release"
	Leave    Step = "leave"
	Last     Step = "last" // a document that nobody holds, and nobody waits for, is deleted
	Undo     Step = "undo"
	Break    Step = "break"
)

// claims reports whether the command may make a claim the holder, or find that it is.
func (s Step) claims() bool {
	switch s {
	case Acquire, TakeOver, Offer, Join, HandOver, Confirm:
		return true
	}
	return false
}

// A Shape says how a store keeps a lock in a document.
type Shape[R Record] interface {
	// Name returns the filter of the document that r is about, whichever holder it has.
	Name(r store.Ref) (bson.D, error)
	// Fields returns the path of a holder's fields, if the document is a lock of this library
	// and they are that holder's, which Named makes sure of.
	Fields(id string) Fields
	Named(id string) []bson.E
	// Holds is the condition that the lock has the holder, expired or not.
	Holds(id string) []bson.E
	// Read reads a document of any shape.
	Read(document bson.Raw) R
	// FindMany reads the documents of some refs, in their order, under the read concern of
	// coll.
	FindMany(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]Image[R], error)
}

// Steps are the steps of one store. X is what the store remembers of a lease in addition.
type Steps[R Record, X any] struct {
	Base   *command.Collection
	Shape  Shape[R]
	Lock   Fields   // where the fields of the lock itself are: its line, the server's time
	Sound  []bson.E // the condition that the fields of a lock have their types
	Only   bson.D   // the projection of the reply to every command but a claim; nil: all of the document
	Memory Memory[X]
	Feed   interface {
		Notify(ctx context.Context, all ...store.Notice) error
	}

	// Remembers returns what the store remembers of a grant.
	Remembers func(c *Claim, image Image[R], t Tenure) X
}

// A Claim is one claim that is under way through the commands of its attempt.
type Claim struct {
	store.Claim
	Attempt *command.Attempt
	Sent    server.Moment // when the call began: trust counts from here
	Names   bson.D        // the filter of the document, whoever made it
	Ours    bson.D        // and if it is a lock of this library

	// CleanUp removes the claim by its ID, in the attempt's session. It returns the key as that
	// left it, or nothing if the claim was not there.
	CleanUp func(context.Context) (store.Status, error)

	// Got, if set, is called with the document as a grant left it.
	Got func(document bson.Raw)
}

// A Tenure is what a claim or a renewal writes.
type Tenure = server.Tenure

// Try makes a claim in an attempt of its own, with the attempt's session in the context.
func (s *Steps[R, X]) Try(ctx context.Context, c store.Claim, claim func(context.Context, *Claim) (store.Grant, error)) (g store.Grant, err error) {
	sent := s.Base.Clock.Now()
	err = s.Base.Try(ctx, c.ID, c.TTL, func(ctx context.Context, a *command.Attempt) (certain bool, err error) {
		g, err = claim(ctx, &Claim{Claim: c, Attempt: a, Sent: sent})
		return err == nil || store.IsCertain(err), err
	})
	return g, err
}
