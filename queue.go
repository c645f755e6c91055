package mongolock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mongolock/mongolock/store"
)

// How long a waiter sleeps at most, and how long its word lasts at least.
const (
	lookMost  = time.Minute
	wordLeast = 3 * time.Minute
)

// A queue is the waiters of one client for one key, in order of arrival. Only the
// head talks to the store, and not even it while this client itself holds the
// key. Protected by Client.mu.
type queue struct {
	head, tail *waiter
	woken      bool          // a wake-up came; latched for the key, so that a head which leaves does not eat it
	lookAt     time.Time     // when the head asks again without a wake-up
	seen       *store.Status // what the last refusal showed
	freeSeen   int           // refusals in a row that showed a free key
	faults     func() time.Duration
	word       time.Time // until when our word stands, by our reckoning

	streak      int // hand-overs in a row since others left word
	streakSince time.Time
}

// A waiter is one Acquire. Its first fields do not change; the others are
// protected by Client.mu.
type waiter struct {
	ctx      context.Context
	key      string
	terms    terms
	patience time.Time // MaxWait after the call; zero: none

	prev, next *waiter
	nudge      chan struct{} // of capacity 1: look again at what to do
	lease      *Lease        // handed over to it
	gone       bool          // it left; what is handed to it must be given back
	asking     bool          // a claim of its own is under way
	refused    bool          // it was told, or can tell, that the key is held
	fault      error         // the last one it rode out
}

// A move is what a waiter has to do now.
type move struct {
	lease *Lease    // it has the key
	ask   bool      // send a claim
	until time.Time // sleep; zero: until it is nudged
}

// await is Acquire: it stands in the queue until it has the key, or leaves.
func (c *Client) await(w *waiter) (*Lease, error) {
	c.join(w)
	var endWait func(Outcome)
	defer func() {
		if endWait != nil {
			endWait(Outcome{Err: w.fault})
		}
	}()
	for {
		switch m := c.next(w); {
		case m.lease != nil:
			return m.lease, nil
		case m.ask:
			if lease, err := c.askForKey(w); lease != nil || err != nil {
				return c.leave(w, lease, err)
			}
		default:
			if endWait == nil {
				w.ctx, endWait = c.observe(w.ctx, OpWait, w.key)
			}
			if err := c.sleep(w, m.until); err != nil {
				return c.leave(w, nil, err)
			}
		}
	}
}

func (c *Client) join(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[w.key]
	if q == nil {
		if q = c.spare; q == nil {
			q = new(queue)
		}
		c.spare = nil
		*q = queue{head: w, tail: w, woken: true}
		c.queues[w.key] = q
		return
	}
	w.prev, q.tail.next, q.tail = q.tail, w, w
	w.refused = true // behind others of this process
}

// next decides what w does.
func (c *Client) next(w *waiter) move {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[w.key]
	switch {
	case w.lease != nil:
		c.unlink(q, w)
		return move{lease: w.lease}
	case q.head != w:
		return w.sleepUntil(time.Time{})
	case c.held[w.key] != nil:
		w.refused = true
		return w.sleepUntil(time.Time{})
	}
	if shy, ok := c.shy[w.key]; ok && time.Now().Before(shy) {
		return w.sleepUntil(shy)
	}
	if q.woken || !time.Now().Before(q.lookAt) {
		q.woken, w.asking = false, true
		return move{ask: true}
	}
	return w.sleepUntil(q.lookAt)
}

func (w *waiter) sleepUntil(t time.Time) move {
	if w.nudge == nil { // most waiters are served at once and need none
		w.nudge = make(chan struct{}, 1)
	}
	return move{until: t}
}

// askForKey sends a claim for the head, and plans the next look if it is refused
// or, once w is waiting, fails.
func (c *Client) askForKey(w *waiter) (*Lease, error) {
	want := max(2*w.terms.ttl, wordLeast)
	lease, err := c.send(w, want)

	c.mu.Lock()
	defer c.mu.Unlock()
	w.asking = false
	q := c.queues[w.key]
	var held *store.HeldError
	switch {
	case lease != nil:
		return lease, nil
	case errors.As(err, &held):
		q.faults = nil
		w.refused, w.fault = true, nil
		c.refused(q, held.Status, want)
		return nil, nil
	case errors.As(err, new(*abandoned)), errors.Is(err, ErrClosed), verdict(err), !w.refused:
		return nil, err
	}
	if q.faults == nil {
		q.faults = backoff(50*time.Millisecond, time.Second)
	}
	w.fault = err
	q.lookAt = time.Now().Add(q.faults())
	return nil, nil
}

// refused plans when to look at a held key again. With c.mu held.
func (c *Client) refused(q *queue, s store.Status, want time.Duration) {
	now := time.Now()
	q.seen = &s
	q.word = now.Add(want / 2)
	if s.Free() {
		// Freed while the refusal was on its way: ask once more at once, and if
		// others are always faster, not in a tight loop.
		q.lookAt = now
		if q.freeSeen++; q.freeSeen > 1 {
			q.lookAt = now.Add(jittered(5 * time.Millisecond))
		}
	} else {
		q.freeSeen = 0
		q.lookAt = earlier(now.Add(drifted(s.Left())), now.Add(jittered(lookMost*3/4)))
	}
	c.watch.begin()
}

// sleep waits for whatever comes first; an error ends the wait.
func (c *Client) sleep(w *waiter, until time.Time) error {
	wake, stopWake := timerAt(until)
	defer stopWake()
	giveUp, stopGiveUp := timerAt(w.patience)
	defer stopGiveUp()
	select {
	case <-w.nudge:
	case <-wake:
	case <-giveUp:
		return errPatience
	case <-w.ctx.Done():
		return &abandoned{contextError(w.ctx)}
	case <-c.draining:
		return ErrClosed
	}
	return nil
}

var errPatience = errors.New("mongolock: MaxWait is over")

func timerAt(t time.Time) (<-chan time.Time, func() bool) {
	if t.IsZero() {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(time.Until(t))
	return timer.C, timer.Stop
}

// leave takes w out of the queue. A lease handed over in the last moment is not
// lost: the caller gets it.
func (c *Client) leave(w *waiter, lease *Lease, err error) (*Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[w.key]
	w.gone = true
	if lease == nil {
		lease = w.lease
	}
	if lease != nil {
		c.unlink(q, w)
		return lease, nil
	}
	status := c.statusOf(q, w.key)
	c.unlink(q, w)
	return nil, w.gaveUp(status, err)
}

// gaveUp is the error of a waiter that leaves without the key.
func (w *waiter) gaveUp(status store.Status, err error) error {
	held := &HeldError{Status: status}
	over := errors.As(err, new(*abandoned))
	switch {
	case err == errPatience && w.fault == nil: //nolint:errorlint // ours, never wrapped
		return held
	case err == errPatience: //nolint:errorlint // ours, never wrapped
		return fmt.Errorf("%w; last fault: %w", held, w.fault)
	case over && w.refused && w.fault != nil:
		return fmt.Errorf("mongolock: acquire %q: %w: %w; last fault: %w", w.key, err, held, w.fault)
	case over && w.refused:
		return fmt.Errorf("mongolock: acquire %q: %w: %w", w.key, err, held)
	case over, errors.Is(err, ErrClosed):
		return &fault{op: "acquire", key: w.key, err: err}
	}
	return failed("acquire", w.key, err)
}

// statusOf is what is known of who holds the key. With c.mu held.
func (c *Client) statusOf(q *queue, key string) store.Status {
	if l := c.held[key]; l != nil {
		return l.status()
	}
	if q.seen != nil {
		return *q.seen
	}
	return store.Status{Key: key, Mode: store.Exclusive}
}

// status is this lease as a store would show it, reckoned from its grant.
func (l *Lease) status() store.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.since.Add(time.Since(l.granted))
	return store.Status{
		Key: l.key, Mode: store.Exclusive, Limit: 1, Now: now,
		Holders: []store.Holder{{
			ID: l.ref.ID, Owner: l.client.owner, Note: l.terms.note, Since: l.since,
			ExpireAt: now.Add(time.Until(l.deadline) + l.margin),
		}},
	}
}

// unlink removes w, and passes the turn on if it was the head's. With c.mu held.
func (c *Client) unlink(q *queue, w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	w.prev, w.next = nil, nil
	if q.head == nil {
		delete(c.queues, w.key)
		c.spare = q
		c.watch.idle()
		return
	}
	q.head.poke()
}

// poke makes w look again at what to do. With Client.mu held.
func (w *waiter) poke() {
	if w.nudge == nil {
		return // it did not sleep yet, and looks before it does
	}
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// deliver gives a lease to the waiter that it was claimed for.
func (c *Client) deliver(w *waiter, lease *Lease) {
	c.mu.Lock()
	if gone := w.gone; !gone {
		w.lease = lease
		w.poke()
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	lease.end(ErrReleased)
	lease.giveBackInBackground()
}

// wake makes the head look at the key again. With c.mu held.
func (c *Client) wake(key string) {
	if q := c.queues[key]; q != nil {
		q.woken = true
		q.head.poke()
	}
}

// leaveToOthers keeps the waiters of this process from a key that others left
// word for: being a round trip closer, they would win every time.
func (c *Client) leaveToOthers(key string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shy) >= 64 { // swept as it grows, so that it does not
		for k, until := range c.shy {
			if until.Before(now) {
				delete(c.shy, k)
			}
		}
	}
	c.shy[key] = now.Add(shyTime)
}

// freed tells those who wait that the key may be free: here, and by the feed in
// other processes if one of them left word.
func (c *Client) freed(key string, announce bool) {
	c.mu.Lock()
	c.wake(key)
	feed := c.watch.feed
	c.mu.Unlock()
	if !announce || feed == nil {
		return
	}
	c.spawn(func() {
		ctx := c.within(context.Background(), releaseBound)
		defer ctx.end()
		if err := feed.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindFreed}); err != nil {
			c.logger.Debug("mongolock: a wake-up was not sent; waiters find out by themselves", "key", key, "error", err)
		}
	})
}

func jitter() float64 { return rand.Float64() }
