package mongolock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// A move is what a waiter has to do now.
type move struct {
	lease *Lease           // it has the key
	ask   bool             // send a claim
	held  bool             // it is expected to be refused: a look
	read  bool             // read the key beside it, and sleep on
	until monotonic.Moment // sleep; zero: until it is nudged
	now   monotonic.Moment // when that was decided, with ask; the claim was entered as background work then
	shut  bool             // the client is closed: leave
}

// await is Acquire: it stands in the queue until it has the key, or leaves.
func (c *Client) await(ctx context.Context, key string, t *terms) (lease *Lease, err error) {
	var endWait func(Outcome)
	defer func() {
		if endWait != nil {
			endWait(Outcome{Err: err, Count: 1})
		}
	}()
	for w, m := c.join(ctx, key, t); ; m = c.next(w) {
		switch {
		case m.shut:
			return c.leave(w, nil, &abandoned{ErrClosed})
		case m.lease != nil:
			return m.lease, nil
		case m.ask:
			lease, err := c.askForKey(w, m)
			if lease != nil || err != nil {
				return c.leave(w, lease, err)
			}
		case m.read:
			c.spawn(func() { c.read(key) })
		default:
			if endWait == nil {
				_, endWait = c.observe(ctx, OpWait, key)
			}
			if err := c.sleep(w, m.until); err != nil {
				return c.leave(w, nil, err)
			}
		}
	}
}

// next tells what w is to do now.
func (c *Client) next(w *waiter) move {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decide(w)
}

// decide is next, with c.mu held.
func (c *Client) decide(w *waiter) move {
	q := w.queue
	switch {
	case w.lease != nil:
		c.unlink(w)
		return move{lease: w.lease}
	case q.head != w:
		return w.sleepUntil(0)
	case q.holder != nil:
		w.refused = true
		return w.sleepUntil(0)
	}
	now := c.clock.Now()
	if shy, ok := c.shy[w.key]; ok && now < shy {
		w.refused = true // as good as: it is left to others
		if q.again == 0 {
			q.again = now.Add(backoff.Jitter(shyLook))
		}
		return q.sleepOrRead(w, now, shy)
	}
	if q.woken || now >= q.lookAt {
		held := q.seen != nil && !open(q.seen, w.terms) && (!q.freed || amongSharers(q.seen, w.terms))
		if !c.enterLocked() {
			return move{shut: true}
		}
		q.woken, q.freed, w.asking = false, false, true
		return move{ask: true, held: held, now: now}
	}
	return q.sleepOrRead(w, now, q.lookAt)
}

// sleepOrRead lets the head sleep until t, but for a look that is due before.
func (q *queue) sleepOrRead(w *waiter, now, t monotonic.Moment) move {
	switch {
	case q.again == 0:
	case now >= q.again:
		q.again = 0
		return move{read: true}
	default:
		t = min(t, q.again)
	}
	return w.sleepUntil(t)
}

func (w *waiter) sleepUntil(t monotonic.Moment) move {
	if w.nudge == nil { // most waiters are served at once and need none
		w.nudge = make(chan struct{}, 1)
	}
	return move{until: t}
}

// askForKey sends a claim for the head, and plans the next look if it is refused
// or, once w is waiting, fails.
func (c *Client) askForKey(w *waiter, m move) (*Lease, error) {
	want := max(2*w.terms.ttl, wordLeast)
	lease, err := c.send(w, want, m.held, m.now)
	if lease != nil {
		return lease, nil // and w leaves, or has left
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	w.asking = false
	q := w.queue
	var held *store.HeldError
	switch {
	case errors.As(err, &held):
		q.faults = nil
		w.refused, w.fault = true, nil
		c.refused(q, w, held.Status, want)
		return nil, nil
	case errors.As(err, new(*abandoned)), errors.Is(err, ErrClosed), errors.Is(err, ErrDisconnected), store.IsVerdict(err), !w.refused:
		q.woken, q.freed = true, true // the next in line asks for himself: what woke this one may be news to him
		return nil, err
	}
	if q.faults == nil {
		q.faults = backoff.New(50*time.Millisecond, time.Second)
	}
	w.fault = err
	q.lookAt = c.clock.Now().Add(q.faults.Next())
	return nil, nil
}

// refused plans when to look at a held key again. With c.mu held.
func (c *Client) refused(q *queue, w *waiter, s store.Status, want time.Duration) {
	now := c.clock.Now()
	c.watch.begin(q.seen == nil)
	if !q.sees(s) {
		q.firm = 0
	}
	q.seen, q.reserved = &s, time.Time{}
	if !w.terms.shares() {
		q.reserved = w.ownWord(&s)
	}
	q.word = now.Add(wordOf(&s, w.terms, want) / 2)
	q.pause = lookAgain
	c.makeSure(q, now)
	if open(&s, w.terms) {
		// Freed while the refusal was on its way: ask once more at once, and if
		// others are always faster, not in a tight loop.
		q.lookAt = now
		if q.freeSeen++; q.freeSeen > 1 {
			q.lookAt = now.Add(backoff.Jitter(5 * time.Millisecond))
		}
	} else {
		q.freeSeen = 0
		q.lookAt = min(now.Add(drifted(opens(&s, w.terms))), q.word, now.Add(backoff.Jitter(lookMost*3/4)))
	}
}

// makeSure plans to read the key once more, unless two looks showed the holder that
// our word was left with, the second a moment after the first: then its release will
// see the word. Until then the word may have gone with a holder whose release was
// under way. With c.mu held.
func (c *Client) makeSure(q *queue, now monotonic.Moment) {
	q.again = 0
	switch {
	case q.firm > 1, !c.watch.live, knob.WordAfterLook: // in the second it polls
		return
	case q.firm == 1:
		q.pause = pollMost
	}
	q.again = now.Add(backoff.Jitter(q.pause))
	q.pause = min(2*q.pause, pollMost)
	q.head.poke() // it may sleep for longer
}

// sleep waits for whatever comes first; an error ends the wait.
func (c *Client) sleep(w *waiter, until monotonic.Moment) error {
	wake, stopWake := c.timerAt(until)
	defer stopWake()
	giveUp, stopGiveUp := c.timerAt(w.patience)
	defer stopGiveUp()
	select {
	case <-w.nudge:
	case <-wake:
	case <-giveUp:
		return &abandoned{errPatience}
	case <-w.ctx.Done():
		return &abandoned{contextError(w.ctx)}
	case <-c.draining:
		return &abandoned{ErrClosed}
	}
	return nil
}

var errPatience = errors.New("MaxWait is over")

func (c *Client) timerAt(t monotonic.Moment) (<-chan time.Time, func() bool) {
	if t == 0 {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(c.clock.Until(t))
	return timer.C, timer.Stop
}

// gaveUp is the error of a waiter that leaves without the key. It says that the
// key is held only if w knows.
func (w *waiter) gaveUp(status store.Status, err error) error {
	if !errors.As(err, new(*abandoned)) {
		return failed("acquire", w.key, err)
	}
	held := &HeldError{Status: status}
	patience := errors.Is(err, errPatience)
	switch {
	case errors.Is(err, ErrClosed), !w.refused:
		return &fault{op: "acquire", key: w.key, err: err}
	case patience && w.fault == nil:
		return held
	case patience:
		return fmt.Errorf("%w; last fault: %w", held, w.fault)
	case w.fault != nil:
		return fmt.Errorf("mongolock: acquire %q: %w: %w; last fault: %w", w.key, err, held, w.fault)
	}
	return fmt.Errorf("mongolock: acquire %q: %w: %w", w.key, err, held)
}
