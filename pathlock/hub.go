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
	wordFor   = time.Minute           // how long the word of a waiter or a watcher lasts
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

// wrote wakes the sleepers of this process after a change. If other processes are known to
// listen, it also wakes those. A notice that takes a command is sent in the background.
func (h *hub) wrote(ctx context.Context, heard bool) {
	h.wake()
	if !heard || h.feed == nil {
		return
	}
	notice := store.Notice{Topic: topicPaths, Key: h.tree.name, Kind: kindChanged}
	h.tree.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyFor)
		defer cancel()
		_ = h.feed.Notify(ctx, notice)
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

// leaveWord says that a process watches or waits, unless the tree already says so for long enough. If
// it did not say so until now, writers may have logged nothing: so one number is skipped in the log, and an
// earlier watcher sees the gap.
func (d *document) leaveWord(now interval) {
	if d.Watched.After(now.Latest.Add(wordFor / 2)) {
		return
	}
	if !d.watched(now) {
		d.Seq++
	}
	d.Watched, d.changed = now.Latest.Add(wordFor), true
}
