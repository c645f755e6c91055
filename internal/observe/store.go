package observe

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A Call is a kind of call of a store.
type Call int

// The calls of a store and of its feed.
const (
	Acquire Call = iota
	Transfer
	Renew
	Release
	Undo
	Break
	Look
	List
	Withdraw
	Notify
	Watch
	calls // how many there are
)

var callNames = [calls]string{"acquire", "transfer", "renew", "release", "undo", "break", "look", "list", "withdraw", "notify", "watch"}

// A Store counts the calls of the store that it wraps.
type Store struct {
	store.Store
	counts [calls]atomic.Uint64
}

// Count wraps a store.
func Count(s store.Store) *Store { return &Store{Store: s} }

// Unwrap returns the store that is wrapped.
func (s *Store) Unwrap() store.Store { return s.Store }

// Add counts one call.
func (s *Store) Add(c Call) { s.counts[c].Add(1) }

// Calls are the calls so far, by kind.
func (s *Store) Calls() map[string]uint64 {
	all := make(map[string]uint64, calls)
	for c := range s.counts {
		all[callNames[c]] = s.counts[c].Load()
	}
	return all
}

func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.Add(Acquire)
	return s.Store.Acquire(ctx, c)
}

func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	s.Add(Transfer)
	return s.Store.Transfer(ctx, from, to)
}

func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	s.Add(Renew)
	return s.Store.Renew(ctx, batch)
}

func (s *Store) Release(ctx context.Context, r store.Ref, keep time.Duration) (wanted bool, err error) {
	s.Add(Release)
	return s.Store.Release(ctx, r, keep)
}

// BulkReleaser returns the store if it is one, or nil. A bulk is one release.
func (s *Store) BulkReleaser() store.BulkReleaser {
	b, ok := s.Store.(store.BulkReleaser)
	if !ok {
		return nil
	}
	return bulkReleaser{b, s}
}

type bulkReleaser struct {
	store.BulkReleaser
	counts *Store
}

func (b bulkReleaser) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	b.counts.Add(Release)
	return b.BulkReleaser.ReleaseMany(ctx, batch)
}

// BulkAcquirer returns the store if it is one, or nil. A bulk is one acquire.
func (s *Store) BulkAcquirer() store.BulkAcquirer {
	b, ok := s.Store.(store.BulkAcquirer)
	if !ok {
		return nil
	}
	return bulkAcquirer{b, s}
}

type bulkAcquirer struct {
	store.BulkAcquirer
	counts *Store
}

func (b bulkAcquirer) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	b.counts.Add(Acquire)
	return b.BulkAcquirer.AcquireMany(ctx, batch)
}

func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	s.Add(Undo)
	return s.Store.Undo(ctx, claim, from)
}

func (s *Store) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	s.Add(Break)
	return s.Store.Break(ctx, r, reason, now)
}

func (s *Store) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	s.Add(Look)
	return s.Store.Look(ctx, keys)
}

func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	s.Add(List)
	return s.Store.List(ctx, prefix)
}

// Withdrawer returns the store's, or nil.
func (s *Store) Withdrawer() store.Withdrawer {
	w := store.WithdrawerOf(s.Store)
	if w == nil {
		return nil
	}
	return withdrawer{w, s}
}

type withdrawer struct {
	store.Withdrawer
	counts *Store
}

func (w withdrawer) Withdraw(ctx context.Context, key string, until time.Time) error {
	w.counts.Add(Withdraw)
	return w.Withdrawer.Withdraw(ctx, key, until)
}

// Feed is the store's; nil if it has none.
func (s *Store) Feed() store.Feed {
	f := store.FeedOf(s.Store)
	if f == nil {
		return nil
	}
	return feed{f, s}
}

type feed struct {
	store.Feed
	counts *Store
}

func (f feed) Notify(ctx context.Context, all ...store.Notice) error {
	f.counts.Add(Notify)
	return f.Feed.Notify(ctx, all...)
}

func (f feed) Watch(ctx context.Context) iter.Seq2[store.Notice, error] {
	f.counts.Add(Watch)
	return f.Feed.Watch(ctx)
}
