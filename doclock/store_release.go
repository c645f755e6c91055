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
	g, _ := s.granted(id)
	return g.ending
}

// end sets what the release of a lease does, and reports whether it did. Only the first call
// counts: at the second one the release may be under way.
func (s *docStore) end(id string, e *ending) (counts bool) {
	s.change(id, func(g *granted) {
		if counts = g.ending == nil; counts {
			g.ending = e
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
	g, _ := s.granted(r.ID)
	e := g.ending
	defer func() {
		if e != nil && err != nil && store.IsCertain(err) && !e.doubt.Load() {
			s.change(r.ID, func(g *granted) { g.ending = e.otherwise })
		}
	}()
	if _, err := s.base.Read(ctx); err != nil {
		return store.ReleaseResult{}, server.NotApplied(err)
	}
	ctx = server.Bare(ctx)
	within := ctx
	if e != nil { // a later attempt may run when the caller's session has ended
		within = mongo.NewSessionContext(ctx, e.session.Swap(nil))
	}
	image, err := s.release(within, of, e)
	e.answered(image.Found(), err)
	s.freed.add(r.Key, image.Image.Lookup("_id"))
	switch {
	case err != nil:
		return store.ReleaseResult{}, server.Classified(err)
	case image.Found():
		s.forget(r.ID)
		return s.steps.Released(r, image), nil
	}
	seen, err := s.find(ctx, r)
	s.forget(r.ID)
	if err = s.steps.NotReleased(r.ID, seen, err); g.gone != nil && errors.Is(err, store.ErrGone) {
		s.freed.add(r.Key, seen.Image.Lookup("_id"))
		return lease.ReleaseResult(seen.Document), nil // the lease's own transaction has released it
	}
	return store.ReleaseResult{}, err
}

// release takes the holder out of the document as e says, and returns the after-image. Under
// MinHold the holder stays, marked as released, so that the lease can no longer be renewed or
// handed over.
//
// The lock is removed as a whole if nothing in it outlasts the holder. That nobody is in line is
// a guess, unless somebody is known to be.
func (s *docStore) release(ctx context.Context, of store.ReleaseRequest, e *ending) (lease.Image, error) {
	coll, conditions := s.steps.ReleaseConcern(of.ID, of.Keep), s.steps.Holds(of.ID)
	if e != nil { // it writes more than the lock, which only a holder that is not broken may do
		coll = s.base.MajorityJournaled
		conditions = s.alive(of.ID)
	}
	if e == nil || !e.alone() {
		name, err := s.name(of.Ref)
		if err != nil {
			return lease.Image{}, err
		}
		t, stays, err := s.steps.Stays(ctx, name, of.ID, of.Keep)
		switch {
		case err != nil:
			return lease.Image{}, err
		case stays:
			return s.send(ctx, lease.Release, coll, of.Ref, conditions, e.join(s.staying(t)))
		}
	}
	if e != nil && e.remove {
		return s.send(ctx, lease.Release, coll, of.Ref, conditions, nil)
	}
	residue := s.residue(of.ID) || e != nil && (e.requeue || e.done)
	if !residue && !of.Line {
		image, err := s.send(ctx, lease.Release, coll, of.Ref, append(slices.Clip(conditions), s.lock.Unawaited()), e.join(s.leaving(false)))
		if err != nil || image.Found() {
			return image, err
		}
	}
	image, err := s.send(ctx, lease.Release, coll, of.Ref, conditions, e.join(s.leavingAs(e, of.Used)))
	if err == nil && !residue {
		s.tidy(ctx, of.Ref, image)
	}
	return image, err
}

// tidy removes a lock in which nothing is left. If that fails, it is in nobody's way.
func (s *docStore) tidy(ctx context.Context, r store.Ref, left lease.Image) {
	if !left.Found() || left.Foreign != nil || len(left.Holders) > 0 || len(left.Line) > 0 || readMarks(left.Image, string(s.lock)).residue() {
		return
	}
	empty := append(s.ours(), s.lock.Unawaited())
	for _, f := range []string{fieldID, fieldAttempts, fieldReadyAt, fieldDone} {
		empty = append(empty, lease.Lacks(s.path(f)))
	}
	_, _ = s.send(ctx, lease.Last, s.base.W1, r, empty, s.leaving(false))
}

// Leave takes a place out of the line of a document, and the lock if nothing is left in it. It
// answers with the lock as it is then.
func (s *docStore) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	ctx, r, none := server.Bare(ctx), store.Ref{Key: key}, store.Status{Key: key}
	name, err := s.name(r)
	if err == nil {
		_, err = s.base.Read(ctx)
	}
	if err != nil {
		return none, server.NotApplied(err)
	}
	var image lease.Image
	if p != "" { // no path of a field has an empty part
		image, err = s.steps.StepOut(ctx, append(name, s.ours()...), p)
	}
	if err != nil {
		return none, server.Classified(err)
	}
	if image.Found() {
		s.tidy(ctx, r, image)
	} else if image, err = s.steps.Find(ctx, name); err != nil {
		return none, server.NotApplied(err)
	}
	return s.steps.Status(key, image.Document), image.Foreign
}

// residue reports whether marks in the lock may outlast the holder.
func (s *docStore) residue(id string) bool {
	g, known := s.granted(id)
	return !known || g.residue
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
	name, err := s.name(r)
	if err != nil {
		return err
	}
	var image lease.Image
	if e != nil {
		image, err = s.release(ctx, store.ReleaseRequest{Ref: r}, e)
	} else {
		u := c.join(nil).Set(s.path(fieldSaves), c.number) // also if nothing changed: the reply tells whether the lease is there
		image, err = s.steps.Send(ctx, lease.Command{
			Step: lease.Release, To: s.base.MajorityJournaled, Filter: append(slices.Concat(name, s.alive(r.ID)), s.newer(c.number)), Update: bson.D(u), As: server.Before,
		})
	}
	switch {
	case err != nil:
		return server.Classified(err)
	case !image.Found():
		return s.steps.Explain(ctx, name, r.ID)
	}
	return nil
}

// Break marks a holder, which learns of it at its next renewal; with now it removes the holder.
// A majority acknowledges both, so that a failover does not undo an operator's order.
func (s *docStore) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if err := modeIs(r.Mode); err != nil {
		return err
	}
	ctx = server.Bare(ctx)
	u := s.leaving(true)
	if !now {
		u = s.timed().Set(s.path(fieldBroken), reason)
	}
	image, err := s.send(ctx, lease.Break, s.base.MajorityJournaled, r, s.steps.Holds(r.ID), u)
	s.freed.add(r.Key, image.Image.Lookup("_id"))
	if err != nil {
		return server.Classified(err)
	}
	if !image.Found() {
		seen, err := s.find(ctx, r)
		if err != nil {
			return server.NotApplied(err)
		}
		return lease.GoneIfBroken(seen.Why(r.ID))
	}
	return nil
}
