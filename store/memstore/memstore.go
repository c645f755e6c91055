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
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/record"
)

// A Store is a set of keys, their holders and those who wait. It is safe for concurrent use.
// New makes one.
type Store struct {
	clock func() time.Time

	mu      sync.Mutex // protects what follows, up to feed; makes each call one step
	records map[string]record.Key
	foreign map[string]any  // what Put left under a key, which then has no record
	key     record.Key      // that of the step under way; a variable of the step would be allocated each time
	spare   []record.Holder // the room of the key that was released last
	token   int64           // the last; one counter serves all keys, as one in a record would begin again with it
	undone  map[string]bool
	oldest  []string // the IDs in undone, in their order

	feed     sync.Mutex // protects watchers; held while sending
	watchers map[chan store.Notice]store.Audience
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
	s := &Store{
		clock: time.Now, records: make(map[string]record.Key), foreign: make(map[string]any),
		undone: make(map[string]bool), watchers: make(map[chan store.Notice]store.Audience),
	}
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
	return s.grant(ctx, c, func(k *record.Key, now time.Time) (store.Grant, error) { return k.Claim(now, &c) })
}

// Transfer puts a new claim in the place of a live holder. The line stays as it is, but for the
// claim's own place.
func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	return s.grant(ctx, to, func(k *record.Key, now time.Time) (store.Grant, error) { return k.Transfer(now, from, &to) })
}

// grant gives a grant its token, unless the claim was undone before it arrived.
func (s *Store) grant(ctx context.Context, c store.Claim, decide func(k *record.Key, now time.Time) (store.Grant, error)) (store.Grant, error) {
	return step(ctx, s, c.Ref, func(k *record.Key, now time.Time) (store.Grant, error) {
		if s.undone[c.ID] {
			return store.Grant{}, errUndone
		}
		g, err := decide(k, now)
		if err == nil {
			s.token++
			g.Token = s.token
		}
		return g, err
	})
}

// Renew answers each entry of the batch in its place.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	for i, r := range batch {
		answers[i], answers[i].Err = step(ctx, s, r.Ref, func(k *record.Key, now time.Time) (store.Renewed, error) { return k.Renew(now, r) })
	}
	return answers
}

// Release removes a holder. With Keep, the holder is marked as released and stays until Keep after
// its grant.
func (s *Store) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	return step(ctx, s, e.Ref, func(k *record.Key, now time.Time) (store.ReleaseResult, error) { return k.Release(now, e) })
}

// Leave takes a place out of the line. It removes the record if the place was all that it held.
func (s *Store) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	return step(ctx, s, store.Ref{Key: key, Mode: store.Exclusive}, func(k *record.Key, now time.Time) (store.Status, error) {
		return k.Leave(now, key, p), nil
	})
}

// Undo removes what a claim of unknown outcome may have left. It is always settled:
// the claim's ID is remembered, and the claim is refused if it arrives later.
func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := ended(ctx); err != nil {
		return false, err
	}
	s.remember(claim.ID)
	settled, err = step(ctx, s, claim, func(k *record.Key, now time.Time) (bool, error) {
		k.Undo(now, claim, from)
		return true, nil
	})
	return settled || errors.Is(err, store.ErrForeign), err
}

// errUndone refuses a claim that arrives after its own Undo.
var errUndone = fmt.Errorf("memstore: this claim was undone (%w)", store.ErrNotApplied)

// rememberUndone is how many of these claims the store remembers. It counts claims, as Undo is not told
// the TTL, and a test's clock may jump. A claim that arrives after so many others were undone is
// granted, has no lease, and expires.
const rememberUndone = 4096

func (s *Store) remember(undone string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.undone[undone] {
		s.undone[undone], s.oldest = true, append(s.oldest, undone)
	}
	if len(s.oldest) > rememberUndone {
		delete(s.undone, s.oldest[0])
		s.oldest = s.oldest[1:]
	}
}

// Break marks a holder as broken and, with atOnce, removes it.
func (s *Store) Break(ctx context.Context, r store.Ref, reason string, atOnce bool) error {
	_, err := step(ctx, s, r, func(k *record.Key, now time.Time) (struct{}, error) {
		return struct{}{}, k.Break(now, r.ID, reason, atOnce)
	})
	return err
}

// step makes one step of a key. If nothing is left of the key, its record is removed.
func step[T any](ctx context.Context, s *Store, r store.Ref, do func(k *record.Key, now time.Time) (T, error)) (none T, err error) {
	if err := cmp.Or(ended(ctx), record.Check(r.Mode)); err != nil {
		return none, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.foreignError(r.Key); err != nil {
		return none, err
	}
	s.key = s.records[r.Key]
	if s.key.Holders == nil {
		s.key.Holders, s.spare = s.spare, nil
	}
	answer, err := do(&s.key, s.clock())
	if s.key.Empty() {
		delete(s.records, r.Key)
		s.spare = s.key.Holders[:0]
	} else {
		s.records[r.Key] = s.key
	}
	return answer, err
}

// ended reports a context that has ended, as a fault that left no trace.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: %w (%w)", err, store.ErrNotApplied)
	}
	return nil
}

// Look reads keys without changing them.
func (s *Store) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	all, foreign := make([]store.Status, len(keys)), make([]error, len(keys))
	for i, key := range keys {
		all[i], foreign[i] = s.records[key].Status(key, now), s.foreignError(key)
	}
	return all, errors.Join(foreign...)
}

// List yields the keys that begin with prefix, in byte order, as they were at one
// moment. The store is not locked while the caller's loop runs.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		err := ended(ctx)
		for _, status := range s.list(prefix) {
			if err = ended(ctx); err != nil || !yield(status, nil) {
				break
			}
		}
		if err != nil {
			yield(store.Status{}, err)
		}
	}
}

func (s *Store) list(prefix string) (all []store.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		if strings.HasPrefix(key, prefix) {
			all = append(all, s.records[key].Status(key, now))
		}
	}
	return all
}

// Put replaces the record of a key with content that is not of this library, as an operator with a
// shell on the database would. From then on the key answers store.ErrForeign.
func (s *Store) Put(key string, content any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, key)
	s.foreign[key] = content
}

// Foreign returns the content that Put left under a key, with ok false if the key has
// no foreign record.
func (s *Store) Foreign(key string) (content any, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, ok = s.foreign[key]
	return content, ok
}

func (s *Store) foreignError(key string) error {
	if content, is := s.foreign[key]; is {
		return fmt.Errorf("%w: %q has %T", store.ErrForeign, key, content)
	}
	return nil
}

// Delete removes the record of a key, foreign or not. A holder learns of it at its
// next renewal; watchers are not told.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, key)
	delete(s.foreign, key)
}

// backlog is how many notices a watcher may be behind. After that one empty notice replaces
// them all: read everything.
const backlog = 64

// Notify sends each notice to the watchers for whom it is, and waits for none of them.
func (s *Store) Notify(ctx context.Context, all ...store.Notice) error {
	if err := ended(ctx); err != nil {
		return err
	}
	s.feed.Lock()
	defer s.feed.Unlock()
	for _, n := range all {
		for watcher, of := range s.watchers {
			if gets(of, n) {
				send(watcher, n)
			}
		}
	}
	return nil
}

// gets reports whether a notice is for the audience.
func gets(of store.Audience, n store.Notice) bool {
	toAll := n == store.Notice{} || of.Address == "" && len(of.Topics) == 0
	return toAll || n.To != "" && n.To == of.Address || n.To == "" && slices.Contains(of.Topics, n.Topic)
}

// Watch yields an empty notice at once, and then every notice that is sent to its audience. A
// watcher that falls far behind gets one empty notice in place of all it missed.
func (s *Store) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		watcher := make(chan store.Notice, backlog)
		s.watch(func() { s.watchers[watcher] = of })
		defer s.watch(func() { delete(s.watchers, watcher) })
		notice := store.Notice{}
		// The context comes first: a busy feed must not keep an ended watch alive.
		for ctx.Err() == nil && yield(notice, nil) {
			select {
			case notice = <-watcher:
			case <-ctx.Done():
			}
		}
	}
}

func (s *Store) watch(change func()) {
	s.feed.Lock()
	defer s.feed.Unlock()
	change()
}

// send never blocks: feed is locked, so no other call sends. In a channel that is full one notice
// stands for all the others.
func send(watcher chan store.Notice, n store.Notice) {
	if len(watcher) == cap(watcher) {
		n = store.Notice{}
		for len(watcher) > 0 {
			select {
			case <-watcher:
			default:
			}
		}
	}
	watcher <- n
}
