package pathlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// The notices of this package: that something in a tree changed which others may
// wait for or watch. Their key is the name of the tree.
const (
	TopicPaths  = "paths"
	KindChanged = "changed"
)

const (
	wordFor   = time.Minute           // how long a tree says that somebody watches or waits
	pollLeast = 50 * time.Millisecond // without a feed
	pollMost  = time.Second           // …
	pollLive  = 30 * time.Second      // beside a feed that works: a notice may be lost
	feedAgain = time.Second           // between two attempts to open it
)

// A hub wakes those who wait for something to change in a tree: after writes of this
// process, and by the storage's feed while somebody is there to be woken.
type hub struct {
	tree *Tree
	feed store.Feed // nil: none

	mu      sync.Mutex // protects the rest
	sleeper map[chan struct{}]bool
	stop    context.CancelFunc // of the goroutine that reads the feed; nil: none
	never   bool               // the feed was refused for good
	live    bool               // and yields
	closed  chan struct{}
}

func newHub(t *Tree, feed store.Feed) *hub {
	return &hub{tree: t, feed: feed, sleeper: make(map[chan struct{}]bool), closed: make(chan struct{})}
}

// join makes a channel that is woken, latched, until leave.
func (h *hub) join() (woken chan struct{}, leave func()) {
	woken = make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sleeper[woken] = true
	if h.stop == nil && h.feed != nil && !h.never {
		ctx, cancel := context.WithCancel(h.tree.base)
		if h.tree.spawn(func() { h.listen(ctx) }) {
			h.stop = cancel
		} else {
			cancel()
		}
	}
	return woken, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.sleeper, woken)
		if len(h.sleeper) == 0 {
			h.quiet()
		}
	}
}

// quiet ends the reading. With mu held.
func (h *hub) quiet() {
	if h.stop != nil {
		h.stop()
		h.stop, h.live = nil, false
	}
}

func (h *hub) listen(ctx context.Context) {
	for ctx.Err() == nil {
		for notice, err := range h.feed.Watch(ctx) {
			if errors.Is(err, errors.ErrUnsupported) {
				h.set(ctx, func() { h.never, h.live = true, false })
				return
			}
			if err != nil {
				break
			}
			if notice == (store.Notice{}) || notice.Topic == TopicPaths && notice.Key == h.tree.name {
				h.set(ctx, func() { h.live = true; h.wake() })
			}
		}
		h.set(ctx, func() { h.live = false })
		select {
		case <-time.After(feedAgain):
		case <-ctx.Done():
		}
	}
}

// set changes the state, unless this reader was stopped and another may run.
func (h *hub) set(ctx context.Context, change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() == nil {
		change()
	}
}

// wake wakes all. With mu held.
func (h *hub) wake() {
	for woken := range h.sleeper {
		select {
		case woken <- struct{}{}:
		default: // latched
		}
	}
}

// wrote tells of a change those in this process and, if somebody is known to listen,
// other processes; off the caller's path where that takes a command.
func (h *hub) wrote(ctx context.Context, heard bool) {
	h.mu.Lock()
	h.wake()
	h.mu.Unlock()
	if !heard || h.feed == nil {
		return
	}
	notice := store.Notice{Topic: TopicPaths, Key: h.tree.name, Kind: KindChanged}
	if _, ok := h.tree.storage.(Prompt); ok {
		_ = h.feed.Notify(context.WithoutCancel(ctx), notice) // a hint
		return
	}
	h.tree.spawn(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyFor)
		defer cancel()
		_ = h.feed.Notify(ctx, notice)
	})
}

// patience is how long to sleep if nothing wakes, given how long that was before.
func (h *hub) patience(before time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live {
		return pollLive
	}
	return min(max(2*before, pollLeast), pollMost)
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.closed)
	h.quiet()
}

// sleep waits until something wakes it or the time is over; no longer than the
// context or the tree.
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

// watch is the word to leave that somebody watches or waits; none if the one there
// lasts.
func (d *Document) watch(now Clock) time.Time {
	if d.Watched.After(now.Latest.Add(wordFor / 2)) {
		return time.Time{}
	}
	return now.Latest.Add(wordFor)
}
