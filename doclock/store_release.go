package doclock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// An ending is what the release of a lease does to the document in the same step. Only
// session and landed change once the engine may see it.
type ending struct {
	changes *change       // what to save; nil: nothing
	after   time.Duration // how long the document is not claimed again
	requeue bool
	done    bool // the document is never claimed again
	remove  bool // the whole document is removed

	session *mongo.Session // the caller's, for the first attempt; protected by docStore.mu
	landed  bool           // a reply said that it is written; protected by docStore.mu
}

// errAlone refuses a hand-over: a document that is completed, requeued or removed is not
// handed to a waiter in the same step.
var errAlone = errors.New("doclock: this release hands nothing over")

func (e *ending) alone() bool { return e.requeue || e.done || e.remove || e.session != nil }

// plain reports whether the release writes nothing but the lock.
func (e *ending) plain() bool { return e == nil }

// join adds to an update what is to be saved.
func (e *ending) join(u *update) {
	if e != nil && e.changes != nil {
		u.sets = append(u.sets, e.changes.sets...)
		u.unset(e.changes.unsets...)
	}
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

// within puts the first attempt of an ending into its caller's session. A later attempt
// may run when that session has ended, and uses none.
func (s *docStore) within(ctx context.Context, e *ending) context.Context {
	if e == nil {
		return ctx
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	session := e.session
	e.session = nil
	return mongo.NewSessionContext(ctx, session)
}

func (s *docStore) land(e *ending) {
	if e != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.landed = true
	}
}

func (s *docStore) hasLanded(e *ending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.landed
}

func (s *docStore) ending(id string) *ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endings[id]
}

// end sets what the release of a lease does, and reports whether it did. Only the first
// call counts: at the second one the release may be under way.
func (s *docStore) end(id string, e *ending) (counts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endings[id] != nil {
		return false
	}
	s.endings[id] = e
	return true
}

// Renew gives holders a new end.
func (s *docStore) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return s.steps.Renew(ctx, batch)
}

// Release takes the holder out of the document and carries out the lease's ending in
// the same step. After an error the ending is kept, and the engine calls again until a
// reply comes. Both commands name the holder: if the lost release was applied, the retry
// finds nothing; if the lost one arrives after the retry, it finds nothing either.
func (s *docStore) Release(ctx context.Context, r store.Ref, keep time.Duration) (wanted bool, err error) {
	if err := modeIs(r.Mode); err != nil {
		return false, err
	}
	ctx = mongobase.Bare(ctx)
	if _, err := s.base.Read(ctx); err != nil {
		return false, mongoerr.NotApplied(err)
	}
	e := s.ending(r.ID)
	image, err := s.release(s.within(ctx, e), r, keep, e)
	if err != nil {
		return false, mongoerr.Mark(err)
	}
	if !image.Found() {
		l, _ := s.lease(r.ID)
		err = mongolease.GoneIfBroken(s.steps.Explain(ctx, r)) // a broken holder's ending was not written
		if errors.Is(err, store.ErrGone) && l.Own.gone != nil {
			err = nil // the lease's own transaction has released it
		}
		s.steps.Memory.Forget(r.ID)
		return false, err
	}
	s.land(e)
	s.freed.add(r.Key, image.Image)
	s.steps.Memory.Forget(r.ID)
	return image.Record.Wanted(s.base.Present()), nil
}

func (s *docStore) release(ctx context.Context, r store.Ref, keep time.Duration, e *ending) (reply, error) {
	conditions := s.named(r.ID)
	if !e.plain() { // it writes more than the lock: only a holder that is not broken may
		conditions = s.alive(r.ID)
	}
	filter, err := s.where(r, conditions...)
	if err != nil {
		return reply{}, err
	}
	if e != nil && e.remove {
		return s.remove(ctx, mongolease.Release, filter)
	}
	l, known := s.lease(r.ID)
	u := s.leavingAs(e, !known || l.Own.residue)
	if keep > 0 && (e == nil || !e.alone()) {
		if u, err = s.later(ctx, r, keep, u); err != nil {
			return reply{}, err
		}
	}
	e.join(u)
	coll := s.base.Durable
	if e == nil {
		coll = s.steps.Gently(r.ID)
	}
	return s.leave(ctx, coll, filter, u)
}

// leavingAs is leaving, and adds the marks that the ending of a claim of one of many
// leaves in the lock.
func (s *docStore) leavingAs(e *ending, residue bool) *update {
	u := s.leaving(residue || e != nil && (e.requeue || e.done))
	switch {
	case e == nil:
	case e.done:
		u.set(s.path(fieldDone), true)
	case e.after > 0:
		_, until := s.base.Now().Expiry(e.after)
		u.set(s.path(fieldReadyAt), date(until))
	}
	return u
}

// later is the release under MinHold: the holder stays until keep after its grant,
// marked as released, so that nobody renews or hands over the lease.
func (s *docStore) later(ctx context.Context, r store.Ref, keep time.Duration, now *update) (*update, error) {
	since, err := s.steps.Since(ctx, r)
	if err != nil {
		return nil, err
	}
	until := since.Add(keep)
	if since.IsZero() || !until.After(s.base.Present()) {
		return now, nil // over already, or not there
	}
	u := &update{stamp: true}
	u.set(s.path(fieldReleased), true)
	u.set(s.path(fieldExpireAt), date(mongoclock.Ceil(until)))
	return u, nil
}

// leave sends a release and returns the before-image, which still has the waiters'
// word.
func (s *docStore) leave(ctx context.Context, coll *mongo.Collection, filter bson.D, u *update) (reply, error) {
	return s.send(ctx, mongolease.Release, coll, filter, u, mongobase.Before)
}

// save writes a document's value under its lease, in the caller's session. With an
// ending it also takes the holder out: that is for transactions, in which the lease goes
// on until the commit.
func (s *docStore) save(ctx context.Context, r store.Ref, c *change, e *ending) error {
	if _, err := s.base.Read(ctx); err != nil {
		return mongoerr.NotApplied(err)
	}
	filter, err := s.where(r, s.alive(r.ID)...)
	if err != nil {
		return err
	}
	var image reply
	switch u := new(update); {
	case e != nil && e.remove:
		image, err = s.remove(ctx, mongolease.Release, filter)
	case e != nil:
		l, known := s.lease(r.ID)
		u = s.leavingAs(e, !known || l.Own.residue)
		e.join(u)
		image, err = s.leave(ctx, s.base.Durable, filter, u)
	default:
		// If the reply is lost, the caller saves again under the next number. If this
		// save is applied after that one, it changes nothing.
		(&ending{changes: c}).join(u)
		u.set(s.path(fieldSaves), c.number) // also if nothing changed: the reply tells whether the lease is there
		image, err = s.leave(ctx, s.base.Durable, append(filter, s.newer(c.number)...), u)
	}
	switch {
	case err != nil:
		return mongoerr.Mark(err)
	case !image.Found():
		return s.steps.Explain(ctx, r)
	}
	return nil
}

// Break marks a holder, which learns of it at its next renewal; with now it removes the
// holder. A majority acknowledges both, so that a failover does not undo what an operator
// did.
func (s *docStore) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if err := modeIs(r.Mode); err != nil {
		return err
	}
	ctx = mongobase.Bare(ctx)
	filter, err := s.where(r, s.named(r.ID)...)
	if err != nil {
		return err
	}
	u := s.leaving(true)
	if !now {
		u = &update{stamp: true}
		u.set(s.path(fieldBroken), reason)
	}
	image, err := s.modify(ctx, mongolease.Break, filter, u)
	if err != nil {
		return mongoerr.Mark(err)
	}
	if !image.Found() {
		return mongolease.GoneIfBroken(s.steps.Explain(ctx, r))
	}
	s.freed.add(r.Key, image.Image)
	return nil
}
