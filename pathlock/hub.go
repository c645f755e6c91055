package pathlock

import (
	"context"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/store"
)

// The notices of this package say that a tree has changed. Their key is the name of the tree.
const (
	topicPaths  = "paths"
	kindChanged = "changed"
)

const (
	pollLeast = 50 * time.Millisecond // without a feed, at first
	pollMost  = time.Second           // … and in the end
	pollLive  = 30 * time.Second      // with a feed, whose notices may get lost
)

// A hub wakes the sleepers of a tree when the tree changes: after a write of this process, and
// by the storage's feed while there are sleepers.
type hub struct {
	tree     *Tree
	feed     store.Feed // nil: none
	follower *follow.Follower
	closed   chan struct{}

	mu       sync.Mutex // protects sleepers
	sleepers map[chan struct{}]bool
}

func newHub(t *Tree, feed store.Feed) *hub {
	h := &hub{tree: t, feed: feed, sleepers: make(map[chan struct{}]bool), closed: make(chan struct{})}
	h.follower = follow.New(t.background.Base(), feed, store.Audience{Topics: []string{topicPaths}}, h.heard, func(follow.Loss) { h.wake() }) // after a loss the sleepers poll
	h.follower.Linger = 0
	return h
}

// join returns a channel that is woken, latched, until leave is called.
func (h *hub) join() (woken chan struct{}, leave func()) {
	woken = make(chan struct{}, 1)
	h.mu.Lock()
	h.sleepers[woken] = true
	h.mu.Unlock()
	h.follower.Join()
	return woken, func() {
		h.follower.Leave()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.sleepers, woken)
	}
}

func (h *hub) heard(n store.Notice) {
	if n == (store.Notice{}) || n.Topic == topicPaths && n.Key == h.tree.name {
		h.wake()
	}
}

// wake wakes all sleepers.
func (h *hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for woken := range h.sleepers {
		select {
		case woken <- struct{}{}:
		default: // latched
		}
	}
}

// wrote wakes the sleepers of this process after a change, and in the background those of other
// processes, if there may be any.
func (h *hub) wrote(ctx context.Context) {
	h.wake()
	if h.feed == nil {
		return
	}
	h.tree.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyFor)
		defer cancel()
		if h.tree.store.awaited(ctx) {
			_ = h.feed.Notify(ctx, store.Notice{Topic: topicPaths, Key: h.tree.name, Kind: kindChanged})
		}
	})
}

// patience returns how long to sleep without a wake-up, given the last such time.
func (h *hub) patience(before time.Duration) time.Duration {
	if h.follower.Live() {
		return pollLive
	}
	return min(max(2*before, pollLeast), pollMost)
}

// close lets all sleepers go, and waits for the end of the feed.
func (h *hub) close() {
	close(h.closed)
	h.follower.Close()
}

// sleep waits until something wakes it or the time is over. It returns an error when the
// context ends or the tree is closed.
func (h *hub) sleep(ctx context.Context, woken <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.closed:
		return ErrClosed
	}
	return nil
}
