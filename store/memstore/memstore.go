// Package memstore keeps locks in memory. It is the reference implementation of
// [store.Store] and [store.Feed], the test double of the lease engine and of
// programs that use it, and a real lock manager for what lives in one process.
//
// Several clients on one Store stand for several processes on one database. A
// Store starts no goroutine and makes its channels inside the calls that use
// them, so it works inside and outside of a testing/synctest bubble.
//
// Exclusive mode only, for now: a call in another mode answers an error that
// matches both errors.ErrUnsupported and [store.ErrNotApplied].
package memstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A Store is a set of keys and their holders. It is safe for concurrent use.
// New makes one.
type Store struct {
	clock func() time.Time

	mu      sync.Mutex // protects what follows; makes each call one step
	records map[string]*record
	spare   *record // of a key that was released, to use again
	undone  undone

	// token is drawn from one counter for all keys: a counter in the record would
	// start again when a release deletes the record.
	token int64

	feed feed
}

// An Option is given to New.
type Option func(*Store)

// WithClock sets the store's own clock, by which alone it judges expiry; the
// default is time.Now. It may be any time away from the callers' clocks, but must
// run at their pace: a clock that steps forward ends holders before their Left is
// over, as a stepping server would. It is called with the store locked and must
// not use the store.
func WithClock(now func() time.Time) Option {
	return func(s *Store) { s.clock = now }
}

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{clock: time.Now, records: make(map[string]*record)}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// AnswersAtOnce marks the store as one whose calls never block.
func (s *Store) AnswersAtOnce() {}

// Acquire claims a key. Left is the whole TTL: it counts from the start of the
// call, and the holder's time begins within it.
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
	switch {
	case rec == nil:
		rec = s.blank()
		s.records[c.Key] = rec
	case rec.foreign:
		return store.Grant{}, rec.foreignError(c.Key)
	case rec.expireAt.After(now):
		rec.want(now, c.Want)
		return store.Grant{}, &store.HeldError{Status: rec.status(c.Key, now)}
	}
	return s.grant(rec, now, c), nil
}

// Renew answers each entry of the batch in its place.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for i, r := range batch {
		rec, err := s.live(ctx, r.Ref, now)
		if err != nil {
			answers[i].Err = err
			continue
		}
		if until := now.Add(r.TTL); until.After(rec.expireAt) {
			rec.expireAt = until
		}
		answers[i].Left = r.TTL
	}
	return answers
}

// Release removes a holder, or with keep leaves it in place, ended, until keep
// after its grant.
func (s *Store) Release(ctx context.Context, r store.Ref, keep time.Duration) (wanted bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.find(ctx, r)
	if err != nil {
		return false, err
	}
	if keep > 0 || !rec.wantedUntil.IsZero() { // else the time does not matter
		now := s.clock()
		wanted = rec.wanted(now)
		if until := rec.since.Add(keep); keep > 0 && until.After(now) {
			rec.released, rec.expireAt = true, until
			return wanted, nil
		}
	}
	delete(s.records, r.Key)
	s.spare = rec
	return wanted, nil
}

// Transfer puts a new claim in the place of a live holder. A word that somebody
// left stays with the record.
func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if err := refuse(ctx, to.Ref); err != nil {
		return store.Grant{}, err
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
	rec, err := s.live(ctx, from, now)
	if err != nil {
		return store.Grant{}, err
	}
	return s.grant(rec, now, to), nil
}

// Undo removes what a claim of unknown outcome may have left. It is always
// settled: the claim's ID is remembered, and should the claim arrive after all, it
// is refused.
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
	case rec.id == claim.ID, from != nil && rec.id == from.ID:
		delete(s.records, claim.Key)
	}
	return true, nil
}

// Break marks a holder as broken and, with now, removes it.
func (s *Store) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.find(ctx, r)
	if err != nil {
		return err
	}
	rec.broken, rec.reason = true, reason
	if now {
		delete(s.records, r.Key)
	}
	return nil
}

// blank is an empty record. None leaves this package, so one is used again and
// again where keys come and go.
func (s *Store) blank() *record {
	rec := s.spare
	if rec == nil {
		return new(record)
	}
	s.spare = nil
	*rec = record{}
	return rec
}

// grant makes c the holder of rec, in place of whoever was there.
func (s *Store) grant(rec *record, now time.Time, c store.Claim) store.Grant {
	rec.holder = holder{
		id: c.ID, owner: c.Owner, note: c.Note,
		since: now, expireAt: now.Add(c.TTL),
	}
	s.token++
	return store.Grant{Token: s.token, Left: c.TTL, Since: now, Wanted: rec.wanted(now)}
}

// find returns the record that r holds, live or run out.
func (s *Store) find(ctx context.Context, r store.Ref) (*record, error) {
	if err := refuse(ctx, r); err != nil {
		return nil, err
	}
	rec := s.records[r.Key]
	switch {
	case rec == nil:
		return nil, store.ErrGone
	case rec.foreign:
		return nil, rec.foreignError(r.Key)
	case rec.id != r.ID:
		return nil, store.ErrGone
	}
	return rec, nil
}

// live returns the record that r holds, if it can be renewed or transferred.
func (s *Store) live(ctx context.Context, r store.Ref, now time.Time) (*record, error) {
	rec, err := s.find(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case rec.broken:
		return nil, &store.BrokenError{Reason: rec.reason}
	case rec.released || !rec.expireAt.After(now):
		return nil, store.ErrGone
	}
	return rec, nil
}

// refuse turns a call away before it does anything.
func refuse(ctx context.Context, r store.Ref) error {
	if err := ended(ctx); err != nil {
		return err
	}
	if r.Mode != store.Exclusive {
		return fmt.Errorf("memstore: mode %q: %w (%w)", r.Mode, errors.ErrUnsupported, store.ErrNotApplied)
	}
	return nil
}

// ended reports a context that is over, as a fault that left no trace.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: %w (%w)", err, store.ErrNotApplied)
	}
	return nil
}
