package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A breakableFeed is a hookedStore with a feed that can be broken and repaired.
type breakableFeed struct {
	*hookedStore
	mu      sync.Mutex    // protects what follows
	broken  error         // what Watch and Notify answer
	cut     chan struct{} // closed to end the watches that are open
	watched int           // calls of Watch
}

func newBreakableFeed(b *hookedStore, broken error) *breakableFeed {
	return &breakableFeed{hookedStore: b, broken: broken, cut: make(chan struct{})}
}

func (f *breakableFeed) Notify(ctx context.Context, all ...store.Notice) error {
	if f.isBroken() != nil {
		return f.isBroken()
	}
	return f.mem.Notify(ctx, all...)
}

func (f *breakableFeed) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		f.mu.Lock()
		broken, cut := f.broken, f.cut
		f.watched++
		f.mu.Unlock()
		if broken != nil {
			yield(store.Notice{}, broken)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-cut:
				cancel()
			case <-ctx.Done():
			}
		}()
		for n := range f.mem.Watch(ctx, of) {
			if !yield(n, nil) {
				return
			}
		}
		if err := f.isBroken(); err != nil {
			yield(store.Notice{}, err)
		}
	}
}

func (f *breakableFeed) isBroken() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// failWith ends all watches and refuses new ones. With nil the feed works again.
func (f *breakableFeed) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
	if err != nil {
		close(f.cut)
		f.cut = make(chan struct{})
	}
}

// A flappingFeed is a store whose feed breaks once it has been open for lasts.
type flappingFeed struct {
	*hookedStore
	lasts   atomic.Int64 // a time.Duration
	watched atomic.Int64
}

func (f *flappingFeed) Notify(ctx context.Context, all ...store.Notice) error {
	return f.mem.Notify(ctx, all...)
}

func (f *flappingFeed) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		f.watched.Add(1)
		if !yield(store.Notice{}, nil) {
			return
		}
		select {
		case <-time.After(time.Duration(f.lasts.Load())):
			yield(store.Notice{}, errNet)
		case <-ctx.Done():
		}
	}
}

// An announceOnlyStore takes notices until it refuses them, and cannot be watched.
type announceOnlyStore struct {
	store.Store
	feed          store.Feed
	refuse        bool
	watched, sent int
}

func (u *announceOnlyStore) Notify(ctx context.Context, all ...store.Notice) error {
	u.sent++
	if u.refuse {
		return errors.ErrUnsupported
	}
	return u.feed.Notify(ctx, all...)
}

func (u *announceOnlyStore) Watch(context.Context, store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		u.watched++
		yield(store.Notice{}, errors.ErrUnsupported)
	}
}

// A refusingFeed is a store whose feed refuses announcements while refuse is set.
type refusingFeed struct {
	*hookedStore
	refuse atomic.Bool
}

func (r *refusingFeed) Notify(ctx context.Context, all ...store.Notice) error {
	if r.refuse.Load() {
		return fmt.Errorf("quota: %w", errors.ErrUnsupported)
	}
	return r.mem.Notify(ctx, all...)
}

func (r *refusingFeed) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return r.mem.Watch(ctx, of)
}
