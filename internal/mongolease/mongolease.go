// Package mongolease has the steps of a store of leases on MongoDB that do not depend on
// what its documents look like: those of store/mongostore, which keeps a document for
// each key, and of package doclock, which keeps a lock inside a document of the
// application. The protocol is that of docs/design.md §4.
//
//	mongolease.go what a store brings along: its shape, and its records
//	acquire.go    acquire, what follows a refusal, hand over
//	grant.go      from an applied claim to a grant: token, time left
//	renew.go      renew, one and many
//	end.go        release, break, clean up, transfer: around the store's own command
//	release.go    what these have alike: how durably, and why none was found
//	look.go       reads of some keys
//	list.go       reads of all keys
//	holder.go     the fields of a holder, which all stores share
//	memory.go     what is remembered of a lease
//
// A store has commands of its own. Here is decided which comes next, and what its
// answer means.
package mongolease

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/store"
)

// A Step names what a command is for: its row in the table of docs/design.md §4.4.
type Step string

// The steps.
const (
	Acquire  Step = "acquire"
	TakeOver Step = "take over" // compare-and-swap where no holder is live
	Join     Step = "join"
	Word     Step = "word"
	Confirm  Step = "confirm"
	Correct  Step = "correct"
	HandOver Step = "hand over"
	Renew    Step = "renew"
	Draw     Step = "draw" // the server's time from a held key
	Release  Step = "release"
	Leave    Step = "leave"
	Last     Step = "last" // the last to leave deletes the document, or keeps it for a writer
	Undo     Step = "undo"
	Break    Step = "break"
)

// A Record is a document as its store has read it.
type Record interface {
	// Foreign is why the document is not a lock of ours: an error that matches
	// store.ErrForeign, or nil.
	Foreign() error
	// Holder is the acquisition of that ID.
	Holder(id string) (Holder, bool)
	// Marks are what is needed of each holder to judge whether it is over.
	Marks() []mongobase.Mark
	// Wanted reports whether the word of somebody who waits is still good.
	Wanted(now time.Time) bool
	// Worded reports whether the claim's own word stands in the document.
	Worded(c store.Claim, now time.Time) bool
	// Drawn is the server's time of the last write, and a timestamp of a confirm step.
	Drawn() (at time.Time, stamp bson.Timestamp)
	// Status is what people are told of it.
	Status(key string, now time.Time) store.Status
}

// A Holder is one acquisition in a document.
type Holder struct {
	store.Holder
	IsBroken bool
	Released bool // given back for later, by MinHold

	TTL   time.Duration
	Beat  int64
	Epoch bson.ObjectID
}

// Mark is what is needed of a holder to judge whether it is over.
func (h Holder) Mark() mongobase.Mark {
	return mongobase.Mark{ID: h.ID, Beat: h.Beat, Epoch: h.Epoch, TTL: h.TTL, ExpireAt: h.ExpireAt}
}

// An Image is the answer of one command about one document.
type Image[R Record] struct {
	mongobase.Reply
	Record R // the zero value if nothing was found
}

// A Shape is how a store keeps a lock in a document. U is an update of its own making.
type Shape[R Record, U any] interface {
	// Where is the filter of the document that r is about, under further conditions.
	Where(r store.Ref, more ...bson.E) (bson.D, error)
	// Holds is the condition that the document has the holder, run out or not.
	Holds(id string) []bson.E
	// Unbroken is the condition that the holder was neither broken nor released.
	Unbroken(id string) []bson.E
	// Alive is the condition that the holder can be renewed and handed over; see
	// Fields.Alive.
	Alive(id string, by mongobase.Bearing) []bson.E
	// Before is the condition that the last write for the holder came before that beat.
	Before(id string, beat int64) bson.E
	// Extend is the update that moves a holder's end, and its beginning unless that is
	// zero, and sets the stamp of the tenure. It never moves them back, so that a late one
	// harms nobody.
	Extend(id string, t Tenure) U
	// Touch is the update that writes nothing but the server's time; with a stamp also
	// a timestamp, where the server tells no operationTime.
	Touch(stamp bool) U

	// Send updates one document and answers its image.
	Send(ctx context.Context, what Step, coll *mongo.Collection, filter bson.D, update U, opts *options.FindOneAndUpdateOptionsBuilder) (Image[R], error)
	// Model is one such update of a bulk.
	Model(what Step, filter bson.D, update U) mongo.WriteModel
	// Find reads one document.
	Find(ctx context.Context, r store.Ref) (Image[R], error)
	// FindMany reads the documents of some refs, in their order, under the read concern of
	// coll.
	FindMany(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]Image[R], error)
}

// Steps are the steps of one store. X is what the store remembers of a lease besides.
type Steps[R Record, U, X any] struct {
	Base   *mongobase.Base
	Shape  Shape[R, U]
	Memory Memory[X]
	Feed   interface {
		Notify(ctx context.Context, n store.Notice) error
	}

	// Remembers is what the store remembers of a grant.
	Remembers func(c *Claim, image Image[R], t Tenure) X
	// Token replaces the token that is drawn from a grant's operationTime, in tests that
	// show why it is drawn so. Usually nil.
	Token func(image Image[R]) int64
}

// A Claim is one claim on its way through the commands of its attempt.
type Claim struct {
	store.Claim
	Attempt *mongobase.Attempt
	Sent    mongoclock.Moment // when the call began: trust counts from here

	base *mongobase.Base

	// Got, if set, is told of the document as a grant left it.
	Got func(document bson.Raw)
}

// A Tenure is what a claim or a renewal writes: when it begins and ends, how long that is
// meant to be, its beat, what it goes by, and the revision that the document has then, where
// documents have one.
type Tenure struct {
	Since, Until time.Time
	TTL          time.Duration
	Beat         int64
	By           mongobase.Bearing
	Rev          bson.ObjectID
}

// Begin opens the attempt of a claim. Nothing of the claim is sent yet.
func (s *Steps[R, U, X]) Begin(ctx context.Context, c store.Claim) (*Claim, error) {
	claim := &Claim{Claim: c, Sent: s.Base.Clock.Now(), base: s.Base}
	var err error
	claim.Attempt, err = s.Base.Begin(ctx, c.ID, c.TTL)
	return claim, err
}

// Over ends the attempt of a claim that was answered with err.
func (s *Steps[R, U, X]) Over(c *Claim, err error) {
	s.Base.Over(c.Attempt, err == nil || store.IsCertain(err))
}

// Tenure is what the claim writes that is sent now.
func (c *Claim) Tenure() Tenure { return TenureOf(c.base, c.TTL) }

// TenureOf is what is written now for a holder that is to last ttl.
func TenureOf(b *mongobase.Base, ttl time.Duration) Tenure {
	t := Tenure{TTL: ttl, Beat: b.Beat(), By: b.Bearing()}
	t.Since, t.Until = t.By.Expiry(ttl)
	return t
}
