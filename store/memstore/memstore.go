// Package memstore keeps locks in memory. It is a real lock manager within one process, the test
// double of programs that lock, and the reference implementation of [store.Store] and [store.Feed].
//
//	s := memstore.New()
//	one, err := mongolock.NewWithStore(s)
//	two, err := mongolock.NewWithStore(s) // as another process on the same database
//
// Several clients on one Store stand for several processes on one database. [WithClock] sets the
// clock that judges expiry. To test code that locks, package mongolocktest has more: it causes losses
// and faults.
//
// A Store starts no goroutine and makes its channels inside the calls that use them, so it works
// inside and outside of a testing/synctest bubble.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A Store is a set of keys, their holders and those who wait. It is safe for concurrent use.
// New makes one.
type Store struct {
	clock func() time.Time

	mu      sync.Mutex // protects all that follows; makes each call one step
	records map[string]*record
	spare   *record // the empty record of the key released last; it stays in records until it is used again
	spared  string  // that key
	undone  undone

	// token is the last token. One counter serves all keys: a counter in the record
	// would start again after a release had removed the record.
	token int64

	feed feed
}

// An Option changes a Store.
type Option interface{ apply(*Store) }

type option func(*Store)

func (o option) apply(s *Store) { o(s) }

// WithClock sets the clock by which the store judges expiry. The default is time.Now.
// The clock may differ from the callers' clocks by any amount, but must run at their
// pace: a step forward ends holders before their Left is over, as a step of a server's
// clock would. It is called with the store locked and must not use the store.
func WithClock(now func() time.Time) Option {
	if now == nil {
		panic("memstore: WithClock(nil): must not be nil")
	}
	return option(func(s *Store) { s.clock = now })
}

// New returns an empty store. It panics if an option is nil.
func New(opts ...Option) *Store {
	s := &Store{clock: time.Now, records: make(map[string]*record)}
	for _, o := range opts {
		if o == nil {
			panic("memstore: a nil Option")
		}
		o.apply(s)
	}
	return s
}

// Acquire claims a key. Left is the whole TTL: Left counts from the start of the
// call, and the holder's time begins later, within the call.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := refuse(ctx, c.Ref); err != nil {
		return store.Grant{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.undone.has(c.ID) {
		return store.Grant{}, errUndone
	}
	rec := s.records[c.Key]
	now := s.clock()
	free := false
	switch {
	case rec == nil:
		rec, free = s.blank(c.Key), true
	case rec == s.spare:
		s.spare, free = nil, true
	case rec.foreign:
		return store.Grant{}, rec.foreignError(c.Key)
	}
	if !free {
		if err := rec.refuse(now, &c); err != nil {
			s.tidy(c.Key, rec)
			return store.Grant{}, err
		}
		rec.advance(now, &c)
		rec.bury(now)
	}
	rec.add(now, &c)
	return s.grant(rec, now, &c), nil
}

// Renew answers each entry of the batch in its place.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for i, r := range batch {
		rec, h, err := s.live(ctx, r.Ref, now)
		if err != nil {
			answers[i].Err = err
			continue
		}
		h.expireAt = later(h.expireAt, now.Add(r.TTL))
		answers[i].Left, answers[i].Line = r.TTL, rec.places()
	}
	return answers
}

// Release removes a holder. With Keep, the holder is marked as released and stays until Keep after
// its grant.
func (s *Store) Release(ctx context.Context, e store.Ending) (ended store.Ended, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, h, err := s.find(ctx, e.Ref)
	if err != nil {
		return ended, err
	}
	if e.Keep > 0 && h.since.Add(e.Keep).After(s.clock()) {
		h.released, h.expireAt = true, h.since.Add(e.Keep)
	} else {
		rec.used = e.Used
		s.drop(e.Key, rec, e.ID)
	}
	if len(rec.holders) > 0 {
		ended.Left = rec.live(s.clock())
	}
	if len(rec.line) > 0 {
		ended.Line = rec.seen(e.Key, s.clock()).Waiting("")
	}
	return ended, nil
}

// Leave takes a place out of the line. It removes the record if the place was all that it held.
func (s *Store) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	if err := ended(ctx); err != nil {
		return store.Status{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, now := s.records[key], s.clock()
	if rec == nil || rec.foreign {
		return rec.status(key, now), rec.foreignError(key)
	}
	rec.leave(p)
	status := rec.status(key, now)
	s.tidy(key, rec)
	return status, nil
}

// Transfer puts a new claim in the place of a live holder. The line stays as it is, but for the
// claim's own place.
func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if err := ended(ctx); err != nil {
		return store.Grant{}, err
	}
	if from.Mode != store.Exclusive || to.Mode != store.Exclusive {
		return store.Grant{}, errNotExclusive
	}
	if from.Key != to.Key {
		err := fmt.Errorf("memstore: %w: transfer of %q to another key, %q", store.ErrNotApplied, from.Key, to.Key)
		return store.Grant{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.undone.has(to.ID) {
		return store.Grant{}, errUndone
	}
	now := s.clock()
	rec, _, err := s.live(ctx, from, now)
	if err != nil {
		return store.Grant{}, err
	}
	rec.holders = rec.holders[:0]
	rec.leave(to.Place)
	rec.add(now, &to)
	return s.grant(rec, now, &to), nil
}

// Undo removes what a claim of unknown outcome may have left. It is always settled:
// the claim's ID is remembered, and the claim is refused if it arrives later.
func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := refuse(ctx, claim); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undone.add(claim.ID)
	rec := s.records[claim.Key]
	switch {
	case rec == nil:
	case rec.foreign:
		return true, rec.foreignError(claim.Key)
	case rec.index(claim.ID) >= 0:
		s.drop(claim.Key, rec, claim.ID)
	case from != nil && rec.index(from.ID) >= 0:
		s.drop(claim.Key, rec, from.ID)
	}
	return true, nil
}

// Break marks a holder as broken and, with now, removes it.
func (s *Store) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, h, err := s.find(ctx, r)
	if err != nil {
		return err
	}
	h.broken, h.reason = true, reason
	if now {
		s.drop(r.Key, rec, r.ID)
	}
	return nil
}

// grant answers a claim that has been added to rec.
func (s *Store) grant(rec *record, now time.Time, c *store.Claim) store.Grant {
	s.token++
	return store.Grant{Token: s.token, Left: c.TTL, Since: now, Line: rec.places()}
}

// find returns the holder that r names, live or expired, and its record.
func (s *Store) find(ctx context.Context, r store.Ref) (*record, *holder, error) {
	if err := refuse(ctx, r); err != nil {
		return nil, nil, err
	}
	rec := s.records[r.Key]
	switch {
	case rec == nil:
		return nil, nil, store.ErrGone
	case rec.foreign:
		return nil, nil, rec.foreignError(r.Key)
	}
	i := rec.index(r.ID)
	if i < 0 {
		return nil, nil, store.ErrGone
	}
	return rec, &rec.holders[i], nil
}

// live is find for a holder that can be renewed or transferred, and refuses others.
func (s *Store) live(ctx context.Context, r store.Ref, now time.Time) (*record, *holder, error) {
	rec, h, err := s.find(ctx, r)
	switch {
	case err != nil:
		return nil, nil, err
	case h.released:
		return nil, nil, store.ErrGone
	case h.broken:
		return nil, nil, &store.BrokenError{Reason: h.reason}
	case !h.live(now):
		return nil, nil, store.ErrGone
	}
	return rec, h, nil
}

// errNotExclusive refuses a transfer between sharers.
var errNotExclusive = fmt.Errorf("memstore: transfer: %w: only an exclusive holder has a place to give (%w)", errors.ErrUnsupported, store.ErrNotApplied)

// refuse checks context and mode before a call does anything.
func refuse(ctx context.Context, r store.Ref) error {
	if err := ended(ctx); err != nil {
		return err
	}
	switch r.Mode {
	case store.Exclusive, store.Shared, store.Permits:
		return nil
	}
	return fmt.Errorf("memstore: mode %q: %w (%w)", r.Mode, errors.ErrUnsupported, store.ErrNotApplied)
}

// ended reports a context that has ended, as a fault that left no trace.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: %w (%w)", err, store.ErrNotApplied)
	}
	return nil
}
