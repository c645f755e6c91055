// Package cleaner undoes claims of unknown outcome: each may hold its key although no process
// knows of it.
//
// A clean-up is repeated until the store says that the claim is settled, or until the grant that
// the claim may have got has run out. One goroutine does this for all claims; while there is
// none, it does not run.
package cleaner

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/store"
)

const (
	// Most is how many claims may be unsettled before no others should be sent. Each of them
	// costs the store a call every five seconds.
	Most = 4096

	atOnce     = 16 // attempts under way at a time, beside those that callers wait for
	pauseLeast = 10 * time.Millisecond
	pauseMost  = 5 * time.Second // between two attempts at one claim
)

// What Settle returns besides the end of its context.
var (
	ErrUnsettled = errors.New("an earlier claim of this client is not settled yet")
	ErrStopped   = errors.New("stopped")
)

// A Host is what a Cleaner works for.
type Host struct {
	Clock  *monotonic.Clock
	Tasks  *tasks.Group
	Call   time.Duration // the longest that one attempt may take
	Undo   func(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error)
	Freed  func(key string) // the key may be free: called without a lock
	Stop   <-chan struct{}  // closed when no caller should wait any longer
	Logger *slog.Logger
}

// A Cleaner cleans up. It is safe for concurrent use, under any lock of its host.
type Cleaner struct {
	host  Host
	count atomic.Int32  // of all claims; changed with mu held
	nudge chan struct{} // of capacity 1: look again at what is due

	mu      sync.Mutex // protects what follows; a leaf: never held across a call of the host
	keys    map[string][]*claim
	due     schedule // the claims without an attempt under way
	busy    int      // attempts under way
	running bool     // the goroutine runs
}

// A claim may hold its key.
type claim struct {
	ref   store.Ref
	from  *store.Ref       // the acquisition that a hand-over named; nil for other claims
	until monotonic.Moment // a grant of the claim has run out by then
	due   monotonic.Moment // when the next attempt is due
	pause *backoff.Backoff
	tried chan struct{} // closed when the attempt that is under way, or else the next one, is over
	index int           // in the schedule, or underWay
	asked bool          // a caller waits for the next attempt: that begins at once

	// answered says that a clean-up found nothing, on a store whose writes have no transaction
	// numbers, where that proves nothing. The clean-up goes on, but other claims may be sent:
	// the store works.
	answered bool
}

const underWay = -1

// New makes a Cleaner.
func New(h Host) *Cleaner {
	return &Cleaner{host: h, nudge: make(chan struct{}, 1), keys: make(map[string][]*claim)}
}

// Add begins to clean up after a claim whose grant, if it has one, has run out at until. from is
// the acquisition that a hand-over named; nil for other claims.
func (c *Cleaner) Add(ref store.Ref, from *store.Ref, until monotonic.Moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := &claim{ref: ref, from: from, until: until, due: c.host.Clock.Now(), pause: backoff.New(pauseLeast, pauseMost), tried: make(chan struct{})}
	c.keys[ref.Key] = append(c.keys[ref.Key], u)
	c.count.Add(1)
	heap.Push(&c.due, u)
	if c.running {
		c.look()
	} else {
		c.running = c.host.Tasks.Go(c.run)
	}
}

// Len is how many claims are unsettled.
func (c *Cleaner) Len() int { return int(c.count.Load()) }

// Full reports whether so many claims are unsettled that no others should be sent.
func (c *Cleaner) Full() bool { return c.Len() >= Most }

// Left returns the claims that are unsettled.
func (c *Cleaner) Left() (all []store.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claims := range c.keys {
		for _, u := range claims {
			all = append(all, u.ref)
		}
	}
	return all
}

// May reports whether a claim that is unsettled may hold the key. Then no other claim of the key
// should be sent.
func (c *Cleaner) May(key string) bool {
	if c.Len() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.of(key)) > 0
}

// of is called with the cleaner locked.
func (c *Cleaner) of(key string) (open []*claim) {
	for _, u := range c.keys[key] {
		if !u.answered {
			open = append(open, u)
		}
	}
	return open
}

// Settle cleans up the claims that may hold the key: at once, with one attempt each, for no longer
// than ctx lasts. An attempt that was under way before does not count if it fails: another one
// follows it. It returns ErrUnsettled if such a claim may still hold the key, ErrStopped, or why
// ctx ended.
func (c *Cleaner) Settle(ctx context.Context, key string) error {
	again, err := c.try(ctx, key)
	if again {
		_, err = c.try(ctx, key)
	}
	return err
}

// try waits for one attempt at each claim of the key. If it fails, again says that an attempt had
// begun before the call.
func (c *Cleaner) try(ctx context.Context, key string) (again bool, err error) {
	c.mu.Lock()
	open := c.of(key) // under the same lock as what follows: a claim that is settled has no attempt to wait for
	tried := make([]<-chan struct{}, len(open))
	for i, u := range open {
		tried[i] = u.tried
		if u.index == underWay {
			again = true
		} else {
			u.asked = true
			heap.Fix(&c.due, u.index)
			c.look()
		}
	}
	c.mu.Unlock()
	for _, over := range tried {
		select {
		case <-over:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-c.host.Stop:
			return false, ErrStopped
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range open { // a claim that failed meanwhile is the next caller's business
		if u.tried != nil && !u.answered {
			return again, ErrUnsettled
		}
	}
	return false, nil
}

// look makes the goroutine check again which attempts are due.
func (c *Cleaner) look() {
	select {
	case c.nudge <- struct{}{}:
	default:
	}
}

// run cleans up until no claim is left, or the tasks are cut off.
func (c *Cleaner) run() {
	var attempts sync.WaitGroup // not tasks of their own: they go on while the tasks are waited for
	defer attempts.Wait()
	for {
		next, more := c.begin(&attempts)
		if !more {
			return
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-c.nudge:
		case <-c.host.Tasks.Base().Done():
			timer.Stop()
			c.mu.Lock()
			c.running = false
			c.mu.Unlock()
			return
		}
		timer.Stop()
	}
}

// begin starts the attempts that are due, as far as there is room, and returns how long to wait
// before the next call. If more is false the goroutine ends.
func (c *Cleaner) begin(attempts *sync.WaitGroup) (next time.Duration, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Len() == 0 {
		c.running = false
		return 0, false
	}
	now := c.host.Clock.Now()
	for len(c.due) > 0 {
		u := c.due[0]
		switch {
		case u.asked:
		case u.due > now:
			return u.due.Sub(now), true
		case c.busy >= atOnce:
			return time.Hour, true // an attempt that ends wakes it
		}
		heap.Pop(&c.due)
		c.busy++
		attempts.Go(func() { c.attempt(u) })
	}
	return time.Hour, true
}

// attempt makes one attempt.
func (c *Cleaner) attempt(u *claim) {
	h := &c.host
	ctx, cancel := h.Tasks.Within(context.Background(), min(h.Call, max(h.Clock.Until(u.until), time.Second)))
	settled, err := h.Undo(ctx, u.ref, u.from)
	cancel()
	now := h.Clock.Now()
	over := now >= u.until
	if settled = settled || store.IsVerdict(err); !settled && over {
		h.Logger.Info("mongolock: gave up cleaning up a claim, which has run out", "key", u.ref.Key, "error", err)
	}
	if first := c.tried(u, now, settled || over, err == nil); settled || over || first {
		h.Freed(u.ref.Key)
	}
}

// tried records the end of an attempt, and lets those go who wait for it. It returns true if the
// claim was answered for the first time.
func (c *Cleaner) tried(u *claim, now monotonic.Moment, done, answered bool) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = answered && !u.answered
	u.answered, u.asked = u.answered || answered, false
	c.busy--
	close(u.tried)
	if done {
		u.tried = nil
		c.forget(u)
	} else {
		u.tried = make(chan struct{})
		u.due = now.Add(min(u.pause.Next(), max(u.until.Sub(now), time.Millisecond)))
		heap.Push(&c.due, u)
	}
	c.look()
	return first
}

// forget takes out a claim that is settled, or has run out.
func (c *Cleaner) forget(u *claim) {
	key := u.ref.Key
	others := c.keys[key][:0]
	for _, other := range c.keys[key] {
		if other != u {
			others = append(others, other)
		}
	}
	if c.keys[key] = others; len(others) == 0 {
		delete(c.keys, key)
	}
	c.count.Add(-1)
}

// A schedule is a heap of claims: first those that a caller waits for, then by due time. The order
// is a fixed one, so that a simulation can be repeated.
type schedule []*claim

func (s schedule) Len() int { return len(s) }

func (s schedule) Less(i, j int) bool {
	a, b := s[i], s[j]
	if a.asked != b.asked {
		return a.asked
	}
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.ref.Key, b.ref.Key), cmp.Compare(a.ref.ID, b.ref.ID)) < 0
}

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule) Push(x any) {
	u := x.(*claim)
	u.index = len(*s)
	*s = append(*s, u)
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	u := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	u.index = underWay
	return u
}
