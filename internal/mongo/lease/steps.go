// Package lease has the steps of a lease in a document of MongoDB. It serves store/mongostore, which
// keeps a document for each key, and package doclock, which keeps a lock inside a document of the
// application. The protocol is that of docs/internals/design.md §4.
//
// A store says how its documents look ([Layout]), makes the commands of its own, and says which one
// comes next. This package sends them, says what an answer means, and has the commands that are
// alike in both: those of the line, renewals, and the second look at a grant.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/swept"
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

// A Command is one command about one document, as a value.
type Command struct {
	Step   Step
	To     *mongo.Collection // one of those of the store's server.Collection, with its write concern
	Filter bson.D
	Update bson.D                                  // nil: the document is deleted
	As     *options.FindOneAndUpdateOptionsBuilder // nil: server.After
	Grants string                                  // the ID of the claim that it may make the holder: of the image no more is read than a grant needs
}

// Steps are the steps of the leases in one collection.
type Steps struct {
	Layout
	Coll   *server.Collection
	Only   any // the projection of each reply but that to a claim; nil: all of the document
	Memory Memory
}

// A Memory holds what is remembered of the leases of a store, by their IDs. The zero value is ready
// for use.
type Memory struct {
	mu     sync.Mutex // protects leases; never held across a command
	leases swept.Map[string, Lease]
}

// A Lease is remembered from its grant to its end. If a lease is not remembered, the store
// reads it, or releases it with more care than needed.
type Lease struct {
	From  server.Moment // when the claim was sent
	Until server.Moment // it may be trusted until then, and so is worth remembering
	Rev   int64         // the revision that the grant wrote, of an exclusive holder
}

func (m *Memory) Granted(id string, l Lease, now server.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases.Put(id, l, func(_ string, old Lease) bool { return old.Until < now }) // those that were not released
}

// renewed remembers until when a lease may be trusted now.
func (m *Memory) renewed(id string, until server.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l, ok := m.leases.All[id]; ok {
		l.Until = max(l.Until, until)
		m.leases.All[id] = l
	}
}

func (m *Memory) Of(id string) (Lease, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.leases.All[id]
	return l, ok
}

func (m *Memory) Forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leases.All, id)
}

// An Image is what one command answered about one document.
type Image struct {
	server.Reply
	Document // the zero value if nothing was found
}

// Send sends a command. If the after-image has the server's time, that counts as a sample. The image of
// what was deleted has no holders, and no line if a lock was deleted as a document: then none was in it.
func (s *Steps) Send(ctx context.Context, c Command) (Image, error) {
	if c.Update == nil {
		r, err := s.Coll.Remove(ctx, c.To, c.Filter, options.FindOneAndDelete().SetProjection(s.Only))
		image := Image{Reply: r}
		if s.Path != "" {
			image.Document = s.Read(r.Image)
			image.Holders = nil
		}
		return image, err
	}
	as := []options.Lister[options.FindOneAndUpdateOptions]{cmp.Or(c.As, server.After)}
	if s.Only != nil && c.Grants == "" {
		as = append(as, options.FindOneAndUpdate().SetProjection(s.Only))
	}
	r, err := s.Coll.Modify(ctx, c.To, c.Filter, c.Update, as...)
	image := Image{Reply: r}
	switch {
	case r.Image == nil:
	case c.Grants != "":
		image.Document = s.readGrant(r.Image, c.Grants)
	default:
		image.Document = s.Read(r.Image)
	}
	if c.As != server.Before {
		s.Coll.Timed(image.At, r.Sent)
	}
	return image, err
}

// Find reads a document that a filter matches.
func (s *Steps) Find(ctx context.Context, filter bson.D) (Image, error) {
	r, err := s.Coll.Find(ctx, filter, options.FindOne().SetProjection(s.Only))
	return Image{r, s.Read(r.Image)}, err
}

// Alive is the condition that the holder is there and can be renewed, handed over and saved under;
// see Fields.Alive.
func (s *Steps) Alive(id string, by server.ClockBasis) []bson.E {
	return append(s.Named(id), s.Holder(id).Alive(by)...)
}

// Trusts reports whether a lease may still be trusted. Then it has not run out, and a command need
// not ask: SecantusDB answers a filter with an $or by reading the whole collection.
func (s *Steps) Trusts(id string) bool {
	l, ok := s.Memory.Of(id)
	return ok && s.Coll.Clock.Now() < l.Until
}

// left returns how long after sent a holder that was written with this validity may be trusted, by a
// server time that was drawn after it was sent. Where shards have clocks of their own no date
// counts: rivals wait until the holder was silent for its TTL, from when it was written on, by their
// own clocks and with the drift of both.
func (s *Steps) left(t Validity, sent, drawn server.Moment, at time.Time) time.Duration {
	if s.Coll.ManyClocks() {
		return t.TTL
	}
	return s.Coll.Left(t, sent, drawn, at)
}

// Status returns what people are shown of a document, including when it will be known which of
// its holders are over.
func (s *Steps) Status(key string, d Document) store.Status {
	status := d.Status(key, s.Coll.Present())
	for i, h := range d.Holders {
		status.Holders[i].KnownBy = s.Coll.KnownBy(key, h.State(), status.Now)
	}
	return status
}

// Looked answers a look at some keys by the documents that it found, and remembers since when their
// holders are silent.
func (s *Steps) Looked(keys []string, images []Image) ([]store.Status, error) {
	at := s.Coll.Clock.Now()
	seen := make([]store.Status, len(keys))
	var strangers []error
	for i, key := range keys {
		d := images[i].Document
		if d.Foreign != nil {
			strangers = append(strangers, fmt.Errorf("%q: %w", key, d.Foreign))
			d = Document{}
		}
		s.Coll.Saw(key, d.States(), at)
		seen[i] = s.Status(key, d)
	}
	return seen, errors.Join(strangers...)
}

// List yields the locks that a filter finds, in the order of the cursor. It leaves out documents of
// strangers.
func (s *Steps) List(ctx context.Context, filter bson.D, opts ...options.Lister[options.FindOptions]) iter.Seq2[Image, error] {
	return func(yield func(Image, error) bool) {
		ctx := server.Bare(ctx)
		err := s.Coll.ReadFresh(ctx)
		s.Coll.Refresh(ctx) // a list is for people: it should be sure which holders have run out
		if err == nil {
			cursor, failed := s.Coll.W1.Find(ctx, filter, append(opts, options.Find().SetProjection(s.Only))...)
			if err = failed; err == nil {
				defer cursor.Close(ctx)
				for cursor.Next(ctx) {
					image := Image{server.Reply{Image: cursor.Current}, s.Read(cursor.Current)}
					if image.Foreign == nil && !yield(image, nil) {
						return
					}
				}
				err = cursor.Err()
			}
		}
		if err != nil {
			yield(Image{}, server.NotApplied(err))
		}
	}
}

// Listed returns what a list shows of a key. A key is remembered if a holder ran out and is not known to
// be over: otherwise each list would begin again to watch it.
func (s *Steps) Listed(key string, d Document) store.Status {
	status := s.Status(key, d)
	if slices.ContainsFunc(status.Holders, status.Confirming) {
		s.Coll.Saw(key, d.States(), s.Coll.Clock.Now())
	}
	return status
}

// StepOut takes a place out of the line of the document that ours finds.
func (s *Steps) StepOut(ctx context.Context, ours bson.D, p store.Place) (Image, error) {
	u := server.Change{}.Add("$pull", s.Path.Among(p)).Unset(s.Path.place(p))
	return s.Send(ctx, Command{Step: StepOut, To: s.Coll.W1, Filter: append(slices.Clip(ours), s.Path.Among(p)), Update: append(bson.D(u), s.Path.Timed())})
}

// lossBorne is how much time the loss of a release may cost. A release that one node
// acknowledges is rolled back if that node does not stay primary: the key then stays taken
// until its expiry.
const lossBorne = time.Minute

// ReleaseConcern returns the collection for a release under a MinHold of keep: with w: 1, or with
// majority if losing the release would cost too much. If it is rolled back, a holder that MinHold keeps
// beyond its TTL is gone too soon. What a lease that is not remembered would cost is unknown.
func (s *Steps) ReleaseConcern(id string, keep time.Duration) *mongo.Collection {
	l, ok := s.Memory.Of(id)
	now := s.Coll.Clock.Now()
	left := l.Until.Sub(now)
	if !ok || left > lossBorne || keep > 0 && l.From.Add(keep).Sub(now) > left {
		return s.Coll.Majority
	}
	return s.Coll.W1
}

// Stays returns what is written for a holder that is released under MinHold and stays in its
// document, which names finds. stays is false if that time is over, or if there is no such holder. For a
// lease that is remembered this process's own clock tells what is left of MinHold. The date of another
// one may be by another clock than the present time: then all of MinHold may be left.
func (s *Steps) Stays(ctx context.Context, names bson.D, id string, keep time.Duration) (t Validity, stays bool, err error) {
	if keep <= 0 {
		return t, false, nil
	}
	var rest time.Duration
	if l, remembered := s.Memory.Of(id); remembered {
		rest = keep - s.Coll.Clock.Now().Sub(l.From)
	} else {
		image, err := s.Find(ctx, names)
		if err != nil {
			return t, false, server.NotApplied(err)
		}
		h, holds := image.Has(id)
		if !holds {
			return t, false, nil
		}
		rest = min(keep, h.Since.Add(keep).Sub(s.Coll.Present()))
	}
	if rest <= 0 {
		return t, false, nil
	}
	return s.Coll.Validity(rest), true, nil
}

// Released answers a release by the document that it left.
func (s *Steps) Released(r store.Ref, left Image) store.ReleaseResult {
	s.Memory.Forget(r.ID)
	if s.Coll.ManyClocks() { // under MinHold the holder stays: its silence counts from here for this process, too
		s.Coll.Saw(r.Key, left.States(), left.Seen())
	}
	return ReleaseResult(left.Document)
}

// ReleaseResult answers a release by the document that it left.
func ReleaseResult(left Document) store.ReleaseResult {
	r := store.ReleaseResult{Line: left.Status("", left.At).Waiting("")}
	for _, h := range left.Holders {
		if h.ExpireAt.After(left.At) {
			r.HoldersLeft += max(1, h.Weight)
		}
	}
	return r
}

// NotReleased answers a release that found no such holder, by what a look showed then.
func (s *Steps) NotReleased(id string, seen Image, err error) error {
	s.Memory.Forget(id)
	if err != nil {
		return server.NotApplied(err)
	}
	return GoneIfBroken(seen.Why(id))
}

// Explain tells why a command that names a holder of the document which names finds found none: the
// document is a stranger's, the holder was broken, or it is not there. The command itself certainly
// changed nothing.
func (s *Steps) Explain(ctx context.Context, names bson.D, id string) error {
	image, err := s.Find(ctx, names)
	if err != nil {
		return server.NotApplied(err)
	}
	return image.Why(id)
}

// Why is Explain for an image that was read already.
func (i Image) Why(id string) error {
	if !i.Found() {
		return store.ErrGone
	}
	if i.Foreign != nil {
		return i.Foreign
	}
	if h, ok := i.Has(id); ok && h.IsBroken && !h.Released {
		return &store.BrokenError{Reason: h.Broken}
	}
	return store.ErrGone
}

// GoneIfBroken returns what a release, or a break, answers for err: for these calls a broken
// holder counts as gone.
func GoneIfBroken(err error) error {
	if errors.As(err, new(*store.BrokenError)) {
		return store.ErrGone
	}
	return err
}
