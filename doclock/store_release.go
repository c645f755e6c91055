package doclock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// An ending is what the release of a lease does to the document in the same step. Only its
// atomic fields change once the engine may see it.
type ending struct {
	changes *change       // the changes to save, or nil
	after   time.Duration // for how long the document is not claimed again
	requeue bool
	done    bool // the document is never claimed again
	dead    bool // with done: it was claimed too often
	remove  bool // the whole document is removed
	unsaved bool // no changes are saved

	uncounted bool // this claim does not count as an attempt

	otherwise *ending // takes its place if it is refused; nil: the document is only released

	session atomic.Pointer[mongo.Session] // the caller's, for the first attempt
	landed  atomic.Bool                   // a reply said that the ending was carried out
	doubt   atomic.Bool                   // a reply was lost
}

// errAlone refuses a hand-over: a document that is completed, requeued or removed is not handed
// to a waiter in the same step.
var errAlone = errors.New("doclock: this release hands nothing over")

func (e *ending) alone() bool { return e.requeue || e.done || e.remove || e.session.Load() != nil }

// join adds the changes to an update.
func (e *ending) join(u update) update {
	if e == nil || e.changes == nil {
		return u
	}
	return e.changes.join(u)
}

// changesAny reports whether the ending may change one of these fields.
func (e *ending) changesAny(fields []bson.E) bool {
	if e == nil || e.changes == nil {
		return false
	}
	overlap := func(path string) bool {
		return slices.ContainsFunc(fields, func(f bson.E) bool {
			return path == f.Key || strings.HasPrefix(path, f.Key+".") || strings.HasPrefix(f.Key, path+".")
		})
	}
	return slices.ContainsFunc(e.changes.sets, func(s bson.E) bool { return overlap(s.Key) }) ||
		slices.ContainsFunc(e.changes.unsets, overlap)
}

// answered records how an attempt ended.
func (e *ending) answered(found bool, err error) {
	switch {
	case e == nil:
	case found:
		e.landed.Store(true)
	case err != nil && !store.IsCertain(server.Classified(err)):
		e.doubt.Store(true)
	}
}

// ending returns what the release of a lease does, or nil if it only releases.
func (s *docStore) ending(id string) *ending {
	l, _ := s.steps.Memory.Of(id)
	return l.Own.ending
}

// end sets what the release of a lease does, and reports whether it did. Only the first call
// counts: at the second one the release may be under way.
func (s *docStore) end(id string, e *ending) (counts bool) {
	s.steps.Memory.Change(id, func(l *lease.Lease[granted]) {
		if counts = l.Own.ending == nil; counts {
			l.Own.ending = e
		}
	})
	return counts
}

// Release takes the holder out of the document and carries out the lease's ending in the same
// step. If its reply is lost the ending is kept, and the engine calls again until a reply
// comes. Both commands name the holder: if the lost release was applied, the retry finds
// nothing; if the lost one arrives after the retry, it finds nothing either. If it was
// certainly not applied, the caller is told so, and the engine goes on without the ending, or with
// the one that takes its place.
func (s *docStore) Release(ctx context.Context, of store.ReleaseRequest) (answer store.ReleaseResult, err error) {
	r := of.Ref
	if err := modeIs(r.Mode); err != nil {
		return store.ReleaseResult{}, err
	}
	l, _ := s.steps.Memory.Of(r.ID)
	e := l.Own.ending
	defer func() {
		if e != nil && err != nil && store.IsCertain(err) && !e.doubt.Load() {
			s.steps.Memory.Change(r.ID, func(l *lease.Lease[granted]) { l.Own.ending = e.otherwise })
		}
	}()
	if _, err := s.base.Read(ctx); err != nil {
		return store.ReleaseResult{}, server.NotApplied(err)
	}
	var seen reply
	answer, err = s.steps.Release(ctx, r, func(ctx context.Context) (reply, error) {
		if e != nil { // a later attempt may run when the caller's session has ended
			ctx = mongo.NewSessionContext(ctx, e.session.Swap(nil))
		}
		image, err := s.release(ctx, of, e)
		e.answered(image.Found(), err)
		s.freed.add(r.Key, image.Image.Lookup("_id"))
		return image, err
	}, func(ctx context.Context) (_ reply, err error) {
		seen, err = s.steps.Find(ctx, r)
		return seen, err
	})
	if l.Own.gone != nil && errors.Is(err, store.ErrGone) {
		s.freed.add(r.Key, seen.Image.Lookup("_id"))
		return lease.EndedAs(seen.Record), nil // the lease's own transaction has released it
	}
	return answer, err
}

// release takes the holder out of the document as e says, and returns the after-image. Under
// MinHold the holder stays, marked as released, so that the lease can no longer be renewed or
// handed over.
//
// The lock is removed as a whole if nothing in it outlasts the holder. That nobody is in line is
// a guess, unless somebody is known to be.
func (s *docStore) release(ctx context.Context, of store.ReleaseRequest, e *ending) (reply, error) {
	coll, conditions := s.steps.Gently(of.ID, of.Keep), s.Holds(of.ID)
	if e != nil { // it writes more than the lock, which only a holder that is not broken may do
		coll = s.base.Durable
		conditions = s.alive(of.ID)
	}
	if e == nil || !e.alone() {
		t, stays, err := s.steps.Stays(ctx, of.Ref, of.Keep)
		switch {
		case err != nil:
			return reply{}, err
		case stays:
			return s.steps.Update(ctx, lease.Release, coll, of.Ref, conditions, bson.D(e.join(s.staying(t))), command.After)
		}
	}
	if e != nil && e.remove {
		filter, err := s.steps.Where(of.Ref, conditions)
		if err != nil {
			return reply{}, err
		}
		return s.steps.Remove(ctx, lease.Release, coll, filter, s.readRemoved)
	}
	residue := s.residue(of.ID) || e != nil && (e.requeue || e.done)
	if !residue && !of.Line {
		image, err := s.steps.Update(ctx, lease.Release, coll, of.Ref, append(slices.Clip(conditions), s.lock.Unawaited()), bson.D(e.join(s.leaving(false))), command.After)
		if err != nil || image.Found() {
			return image, err
		}
	}
	image, err := s.steps.Update(ctx, lease.Release, coll, of.Ref, conditions, bson.D(e.join(s.leavingAs(e, of.Used))), command.After)
	if err == nil && !residue {
		s.tidy(ctx, of.Ref, image)
	}
	return image, err
}

// readRemoved reads the line of a document that was removed: its waiters have to learn of that.
func (s *docStore) readRemoved(document bson.Raw) record {
	r := s.Read(document)
	r.Holders = nil
	return r
}

// tidy removes a lock in which nothing is left. If that fails, it is in nobody's way.
func (s *docStore) tidy(ctx context.Context, r store.Ref, left reply) {
	seen := left.Record
	if !left.Found() || seen.Foreign() != nil || len(seen.Holders) > 0 || len(seen.Line) > 0 || seen.residue() {
		return
	}
	empty := append(s.ours(), s.lock.Unawaited())
	for _, f := range []string{fieldID, fieldAttempts, fieldReadyAt, fieldDone} {
		empty = append(empty, lease.Lacks(s.path(f)))
	}
	_, _ = s.steps.Update(ctx, lease.Last, s.base.Soft, r, empty, bson.D(s.leaving(false)), command.After)
}

// Leave takes a place out of the line of a document, and the lock if nothing is left in it. It
// answers with the lock as it is then.
func (s *docStore) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	ctx, r, none := command.Bare(ctx), store.Ref{Key: key}, store.Status{Key: key}
	filter, err := s.steps.Where(r, s.ours())
	if err == nil {
		_, err = s.base.Read(ctx)
	}
	if err != nil {
		return none, server.NotApplied(err)
	}
	var image reply
	if p != "" { // no path of a field has an empty part
		image, err = s.steps.StepOut(ctx, filter, p)
	}
	if err != nil {
		return none, server.Classified(err)
	}
	if image.Found() {
		s.tidy(ctx, r, image)
	} else if image, err = s.steps.Find(ctx, r); err != nil {
		return none, server.NotApplied(err)
	}
	return s.steps.Status(key, image.Record), image.Record.Foreign()
}

// residue reports whether marks in the lock may outlast the holder.
func (s *docStore) residue(id string) bool {
	l, known := s.steps.Memory.Of(id)
	return !known || l.Own.residue
}

// save writes a document's value under its lease, in the caller's session. If the reply is
// lost, the caller saves again under the next number. If this save is applied after that one,
// it changes nothing. With an ending it also takes the holder out: that is for transactions, in
// which the lease goes on until the commit.
func (s *docStore) save(ctx context.Context, r store.Ref, c *change, e *ending) error {
	if _, err := s.base.Read(ctx); err != nil {
		return server.NotApplied(err)
	}
	if inTransaction(ctx) {
		s.wroteInTransaction(r.ID)       // a renewal from now on may meet it
		defer s.wroteInTransaction(r.ID) // but surely met it only if it is sent from then on
	}
	var image reply
	var err error
	if e != nil {
		image, err = s.release(ctx, store.ReleaseRequest{Ref: r}, e)
	} else {
		u := c.join(nil).Set(s.path(fieldSaves), c.number) // also if nothing changed: the reply tells whether the lease is there
		image, err = s.steps.Update(ctx, lease.Release, s.base.Durable, r, append(s.alive(r.ID), s.newer(c.number)), bson.D(u), command.Before)
	}
	switch {
	case err != nil:
		return server.Classified(err)
	case !image.Found():
		return s.steps.Explain(ctx, r)
	}
	return nil
}

// Break marks a holder, which learns of it at its next renewal; with now it removes the holder.
// A majority acknowledges both, so that a failover does not undo an operator's order.
func (s *docStore) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if err := modeIs(r.Mode); err != nil {
		return err
	}
	return s.steps.Break(ctx, r, func(ctx context.Context) (reply, error) {
		u := s.leaving(true)
		if !now {
			u = s.timed().Set(s.path(fieldBroken), reason)
		}
		image, err := s.modify(ctx, lease.Break, r, s.Holds(r.ID), u)
		s.freed.add(r.Key, image.Image.Lookup("_id"))
		return image, err
	})
}
