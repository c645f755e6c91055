package storetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// brokenFeeds are stores whose feed violates duty 12.
var brokenFeeds = []broken{
	{"FeedWithoutABeginning", func() store.Store { return feedWithoutABeginning{newSound()} },
		[]string{"AWatchBeginsWithAnEmptyNotice"}},
	{"BulkOfOneNotice", func() store.Store { return bulkOfOneNotice{newSound()} },
		[]string{"EveryWatcherHearsABulkOfNotices"}},
	{"FeedOfOneWatcher", func() store.Store { return newFeedBy(queued) },
		[]string{"EveryWatcherHearsANotice"}},
	{"FeedThatWaitsForTheSlowest", func() store.Store { return newFeedBy(handed) },
		[]string{"ASlowWatcherDelaysNobody"}},
	{"FeedThatDropsInSilence", func() store.Store { return newFeedBy(dropped) },
		[]string{"ASlowWatcherDelaysNobody"}},
	{"FeedByTopicOnly", func() store.Store { return feedByTopicOnly{newSound()} },
		[]string{"AWatcherHearsWhatIsForIt"}},
	{"FeedByAddressOnly", func() store.Store { return feedByAddressOnly{newSound()} },
		[]string{"AWatcherHearsWhatIsForIt"}},
	{"FeedThatForgetsThePlace", func() store.Store { return feedThatForgetsThePlace{newSound()} },
		[]string{"AWatcherHearsWhatIsForIt", "EveryWatcherHearsANotice"}},
	{"FeedThatGoesOn", func() store.Store { return feedThatGoesOn{newSound()} },
		[]string{"AWatchEndsWithItsContext"}},
	{"FeedThatIsWatchedOnce", func() store.Store { return &feedThatIsWatchedOnce{sound: newSound()} },
		[]string{"AWatchEndsWhenItsCallerStops"}},
}

type feedWithoutABeginning struct{ sound }

func (s feedWithoutABeginning) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		first := true
		for n, err := range s.Store.Watch(ctx, of) {
			if !first && !yield(n, err) {
				return
			}
			first = false
		}
	}
}

// feedBy is a feed that sends to its watchers' channels with a function of its own.
type feedBy struct {
	sound
	send     func(context.Context, []chan store.Notice, store.Notice) error
	mu       sync.Mutex // protects watchers
	watchers []chan store.Notice
}

func newFeedBy(send func(context.Context, []chan store.Notice, store.Notice) error) *feedBy {
	return &feedBy{sound: newSound(), send: send}
}

func (s *feedBy) Notify(ctx context.Context, all ...store.Notice) error {
	s.mu.Lock()
	watchers := s.watchers
	s.mu.Unlock()
	var errs []error
	for _, n := range all {
		errs = append(errs, s.send(ctx, watchers, n))
	}
	return errors.Join(errs...)
}

func (s *feedBy) Watch(ctx context.Context, _ store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		mine := make(chan store.Notice, 1)
		s.mu.Lock()
		s.watchers = append(s.watchers, mine)
		s.mu.Unlock()
		n := store.Notice{}
		for yield(n, nil) {
			select {
			case n = <-mine:
			case <-ctx.Done():
				return
			}
		}
	}
}

// queued gives each notice to the first watcher that has room for it.
func queued(_ context.Context, watchers []chan store.Notice, n store.Notice) error {
	for _, w := range watchers {
		select {
		case w <- n:
			return nil
		default:
		}
	}
	return nil
}

// handed waits for every watcher in turn.
func handed(ctx context.Context, watchers []chan store.Notice, n store.Notice) error {
	for _, w := range watchers {
		select {
		case w <- n:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// dropped forgets what a watcher has no room for.
func dropped(_ context.Context, watchers []chan store.Notice, n store.Notice) error {
	for _, w := range watchers {
		select {
		case w <- n:
		default:
		}
	}
	return nil
}

// feedThatGoesOn ends long after its context has.
type feedThatGoesOn struct{ sound }

func (s feedThatGoesOn) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		context.AfterFunc(ctx, func() { time.AfterFunc(patience+time.Second, stop) })
		s.Store.Watch(lasting, of)(yield)
	}
}

// feedThatIsWatchedOnce is over when its first watcher leaves.
type feedThatIsWatchedOnce struct {
	sound
	mu   sync.Mutex // protects over
	over bool
}

func (s *feedThatIsWatchedOnce) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		s.mu.Lock()
		over := s.over
		s.mu.Unlock()
		if over {
			return
		}
		s.Store.Watch(ctx, of)(yield)
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
	}
}

type bulkOfOneNotice struct{ sound }

func (s bulkOfOneNotice) Notify(ctx context.Context, all ...store.Notice) error {
	return s.Store.Notify(ctx, all[:min(1, len(all))]...)
}

type feedByTopicOnly struct{ sound }

func (s feedByTopicOnly) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	of.Address = ""
	return s.Store.Watch(ctx, of)
}

type feedByAddressOnly struct{ sound }

func (s feedByAddressOnly) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	of.Topics = nil
	return s.Store.Watch(ctx, of)
}

type feedThatForgetsThePlace struct{ sound }

func (s feedThatForgetsThePlace) Notify(ctx context.Context, all ...store.Notice) error {
	all = slices.Clone(all)
	for i := range all {
		all[i].Place = ""
	}
	return s.Store.Notify(ctx, all...)
}
