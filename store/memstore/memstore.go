// Package memstore keeps locks in memory. It is the reference implementation of
// [store.Store] and [store.Feed], the test double of the lease engine and of
// programs that use it, and a real lock manager for what lives in one process.
//
// Several clients on one Store stand for several processes on one database. A
// Store starts no goroutine and makes its channels inside the calls that use
// them, so it works inside and outside of a testing/synctest bubble.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	spare   *record // of the key released last, empty; it stays there until another is needed
	spared  string  // that key
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
		rec = s.blank(c.Key)
	case rec == s.spare:
		s.spare = nil
	case rec.foreign:
		return store.Grant{}, rec.foreignError(c.Key)
	default:
		if err := rec.refuse(now, &c); err != nil {
			return store.Grant{}, err
		}
		rec.bury(now)
	}
	rec.add(now, &c)
	return s.grant(rec, now, c.TTL), nil
}

// Renew answers each entry of the batch in its place.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for i, r := range batch {
		_, h, err := s.live(ctx, r.Ref, now)
		if err != nil {
			answers[i].Err = err
			continue
		}
		h.expireAt = later(h.expireAt, now.Add(r.TTL))
		answers[i].Left = r.TTL
	}
	return answers
}

// Release removes a holder, or with keep leaves it in place, ended, until keep
// after its grant.
func (s *Store) Release(ctx context.Context, r store.Ref, keep time.Duration) (wanted bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, h, err := s.find(ctx, r)
	if err != nil {
		return false, err
	}
	if keep > 0 || !rec.silent() { // else the time does not matter
		now := s.clock()
		wanted = rec.wanted(now)
		if until := h.since.Add(keep); keep > 0 && until.After(now) {
			h.released, h.expireAt = true, until
			return wanted, nil
		}
	}
	s.drop(r.Key, rec, r.ID)
	return wanted, nil
}

// drop removes a holder, and with the last one the record, unless the word of a
// writer stands in it: it keeps others out until he comes.
func (s *Store) drop(key string, rec *record, id string) {
	if i := rec.index(id); i >= 0 {
		rec.holders = slices.Delete(rec.holders, i, i+1)
	}
	switch {
	case len(rec.holders) > 0:
	case rec.mode != store.Exclusive && !rec.silent() && rec.exclusiveWantedUntil.After(s.clock()):
	default:
		s.spend()
		*rec = record{holders: rec.holders[:0]}
		s.spare, s.spared = rec, key
	}
}

// Transfer puts a new claim in the place of a live holder. A word that somebody
// left stays with the record.
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
	rec.add(now, &to)
	return s.grant(rec, now, to.TTL), nil
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
	case rec.index(claim.ID) >= 0:
		s.drop(claim.Key, rec, claim.ID)
	case from != nil && rec.index(from.ID) >= 0:
		s.drop(claim.Key, rec, from.ID)
	}
	return true, nil
}

// Withdraw takes back the word of a writer who gave up. A record that was left for
// him alone goes with it.
func (s *Store) Withdraw(ctx context.Context, key string, until time.Time) error {
	if err := ended(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[key]
	if rec == nil || rec.foreign || !rec.exclusiveWantedUntil.Equal(until) {
		return nil
	}
	rec.exclusiveWantedUntil = time.Time{}
	if len(rec.holders) == 0 {
		delete(s.records, key)
	}
	return nil
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

// blank puts an empty record under a key. None leaves this package, so one is used
// again and again where keys come and go.
func (s *Store) blank(key string) *record {
	rec := s.spend()
	if rec == nil {
		rec = new(record)
	}
	s.records[key] = rec
	return rec
}

// spend takes the spare record from its key.
func (s *Store) spend() *record {
	rec := s.spare
	if s.spare = nil; rec != nil && s.records[s.spared] == rec { // else somebody put another in its place
		delete(s.records, s.spared)
	}
	return rec
}

// grant is the answer to a claim that is in rec by now.
func (s *Store) grant(rec *record, now time.Time, ttl time.Duration) store.Grant {
	s.token++
	return store.Grant{Token: s.token, Left: ttl, Since: now, Wanted: rec.wanted(now)}
}

// find returns the holder that r names, live or run out, and its record.
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

// live is find, if the holder can be renewed or transferred.
func (s *Store) live(ctx context.Context, r store.Ref, now time.Time) (*record, *holder, error) {
	rec, h, err := s.find(ctx, r)
	switch {
	case err != nil:
		return nil, nil, err
	case h.broken:
		return nil, nil, &store.BrokenError{Reason: h.reason}
	case h.released || !h.live(now):
		return nil, nil, store.ErrGone
	}
	return rec, h, nil
}

// errNotExclusive answers a transfer of what others may hold as well.
var errNotExclusive = fmt.Errorf("memstore: transfer: %w: only an exclusive holder has a place to give (%w)", errors.ErrUnsupported, store.ErrNotApplied)

// refuse turns a call away before it does anything.
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

// ended reports a context that is over, as a fault that left no trace.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: %w (%w)", err, store.ErrNotApplied)
	}
	return nil
}
