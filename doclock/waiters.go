package doclock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/internal/mongo/feed"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

const (
	pollLeast = 50 * time.Millisecond
	pollMost  = time.Second

	topic     = "documents" // of the wake-ups for waiting claims
	kindReady = "ready"
)

// Announce wakes the waiting claims on coll, in all processes. Call it after an insert there,
// and after the commit if the insert was in a transaction. It is a hint: if it is left out, or
// fails, waiters find the document by themselves within about a second. If no claim waits,
// Announce only checks whether one might.
func Announce(ctx context.Context, coll *mongo.Collection) error {
	if coll == nil {
		return errors.New("doclock: Announce: the collection is nil")
	}
	return announce(ctx, feed.Beside(server.New(coll, nil)), coll.Name())
}

// Announce does what the function of that name does, with one command instead of two.
func (l *Locks[T]) Announce(ctx context.Context) error {
	return announce(ctx, l.store.Feed, l.store.base.W1.Name())
}

func announce(ctx context.Context, f store.Feed, name string) error {
	err := f.Notify(ctx, store.Notice{Topic: topic, Key: name, Kind: kindReady})
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // unsupported: then no claim can listen either
		return fmt.Errorf("doclock: announce: %w", err)
	}
	return nil
}

// waiters are the claims of one process that wait for the same work. One of them looks for all;
// when it leaves, another one takes over.
type waiters struct {
	mu       sync.Mutex // protects what follows
	interval time.Duration
	work     chan struct{} // closed when a look has found work
	waiting  int

	looker chan struct{} // of capacity 1: full while one of them looks
	now    chan struct{} // of capacity 1: look now
}

func newWaiters() waiters {
	return waiters{interval: pollLeast, work: make(chan struct{}), looker: make(chan struct{}, 1), now: make(chan struct{}, 1)}
}

func (w *waiters) enter() { w.count(1) }
func (w *waiters) leave() { w.count(-1) }

func (w *waiters) count(by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting += by
}

func (w *waiters) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting > 0
}

// wake wakes all of them, because there is work.
func (w *waiters) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.work)
	w.work = make(chan struct{})
	w.interval = pollLeast
}

// lookNow ends the pause before the next look.
func (w *waiters) lookNow() {
	w.mu.Lock()
	w.interval = pollLeast
	w.mu.Unlock()
	select {
	case w.now <- struct{}{}:
	default:
	}
}

// pause is how long to sleep before the next look.
func (w *waiters) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.interval
	w.interval = min(2*w.interval, pollMost)
	return backoff.Jitter(d)
}

// pools holds the pools of the claims that were made lately, and the feed that wakes their
// waiters.
type pools struct {
	store  *docStore
	base   context.Context
	cancel context.CancelFunc
	feed   *follow.Follower

	mu      sync.Mutex // protects what follows
	byQuery map[string]*pool
	closed  bool
}

func (s *pools) begin(of *docStore) {
	s.store, s.byQuery = of, map[string]*pool{}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.feed = follow.New(s.base, of.Feed, store.Audience{Topics: []string{topic}}, s.heard, nil)
}

func (s *pools) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
}

// pool returns the pool of a filter and sort, and makes one if there is none.
func (s *pools) pool(filter, sort bson.Raw) (*pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("doclock: claim: %w", mongolock.ErrClosed)
	}
	key := string(filter) + string(sort)
	p := s.byQuery[key]
	if p == nil {
		s.evict()
		p = newPool(s.store, slices.Clone(filter), slices.Clone(sort))
		s.byQuery[key] = p
	}
	p.used = time.Now()
	return p, nil
}

// evict makes room for a pool if there are too many: it drops pools without waiters, the one
// first that was used longest ago. Call it with s.mu held.
func (s *pools) evict() {
	for len(s.byQuery) >= maxPools {
		oldest, found := "", false
		for key, p := range s.byQuery {
			if !p.waiters.waits() && (!found || p.used.Before(s.byQuery[oldest].used)) {
				oldest, found = key, true
			}
		}
		if !found {
			return
		}
		delete(s.byQuery, oldest)
	}
}

// sleep returns when there is work, or when it is the caller's turn to look for some. An
// error ends the wait.
func (s *pools) sleep(ctx context.Context, p *pool) error {
	p.waiters.mu.Lock()
	work := p.waiters.work
	p.waiters.mu.Unlock()
	s.feed.Join()
	defer s.feed.Leave()
	select {
	case <-work:
		return nil
	case p.waiters.looker <- struct{}{}:
		defer func() { <-p.waiters.looker }()
	case <-ctx.Done():
		return contextError(ctx)
	case <-s.base.Done():
		return mongolock.ErrClosed
	}
	timer := time.NewTimer(p.waiters.pause())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.waiters.now:
	case <-work:
	case <-ctx.Done():
		return contextError(ctx)
	case <-s.base.Done():
		return mongolock.ErrClosed
	}
	return nil
}

// heard passes on a notice of the feed. An empty notice says that others may have been missed.
func (s *pools) heard(n store.Notice) {
	if n == (store.Notice{}) || n.Topic == topic {
		s.lookNow()
	}
}

func (s *pools) lookNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byQuery {
		if p.waiters.waits() {
			p.waiters.lookNow()
		}
	}
}
