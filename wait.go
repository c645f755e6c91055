package mongolock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// A step is the next action of a waiter.
type step int

const (
	toSleep  step = iota
	toTake        // the lease that it was handed
	toAsk         // for the key
	toRead        // the key, while it sleeps
	toRemove      // a place from the line, while it sleeps
	toStart       // the lease that this client kept for it
)

// A move is a step with its arguments.
type move struct {
	step  step
	until monotonic.Moment // toSleep: until then; zero: until it is nudged
	lease *Lease           // toTake, toStart
	place store.Place      // toRemove
	claim store.Claim      // toAsk: the place in the line, and hints
	now   monotonic.Moment // toAsk: when this was decided; trust in the grant begins here
	told  bool             // toAsk: by a notice, that it is our turn
}

// await is Acquire: the caller stands in the queue until it has the key, or gives up.
func (c *Client) await(ctx context.Context, key string, t *terms) (lease *Lease, err error) {
	var endWait func(Outcome)
	defer func() {
		if endWait != nil {
			endWait(Outcome{Err: err, Count: 1})
		}
	}()
	var patience monotonic.Moment
	if t.maxWait > 0 {
		patience = c.clock.Now().Add(t.maxWait)
	}
	if err := c.settleFirst(ctx, key, patience, errPatience); err != nil {
		return nil, err
	}
	if !c.background.Begin() { // so that Close waits until the place in the line is given up
		return nil, &fault{op: "acquire", key: key, err: ErrClosed}
	}
	w, m := c.join(ctx, key, t, patience)
	defer func() {
		if !c.places.Add(w.gaveUp) {
			c.background.Done()
			return
		}
		go func() {
			defer c.background.Done()
			c.places.Work()
		}()
	}()
	for ; ; m = c.next(w) {
		switch m.step {
		case toTake:
			return m.lease, nil
		case toAsk:
			lease, err := c.askForKey(w, m)
			if lease != nil || err != nil {
				return c.leave(w, lease, err)
			}
		case toStart:
			if lease, err := m.lease.startLocal(); !errors.Is(err, errLate) {
				return c.leave(w, lease, err)
			}
			c.mu.Lock()
			w.asking = false // the lease ran out at that moment, and is given back
			c.mu.Unlock()
		case toRead:
			c.background.Go(func() { c.read(key) })
		case toRemove:
			silent := m.place
			c.background.Go(func() { c.removePlace(key, silent) })
		case toSleep:
			if endWait == nil {
				_, endWait = c.observe(ctx, OpWait, key, t)
			}
			if err := c.sleep(w, m.until); err != nil {
				return c.leave(w, nil, err)
			}
		}
	}
}

// next decides the next move of w.
func (c *Client) next(w *waiter) move {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decide(w, now)
}

// decide is next with the time given and c.mu held. A time read before c.mu was waited for is a
// little early, which only makes trust in a grant begin a little earlier.
func (c *Client) decide(w *waiter, now monotonic.Moment) move {
	q := w.queue
	switch {
	case w.lease != nil:
		w.gaveUp = c.unlink(w)
		return move{step: toTake, lease: w.lease}
	case q.head != w:
		return w.sleepUntil(0)
	case q.holder != nil:
		q.view.Away()
		if l, _ := q.holder.takeIdle(w); l != nil {
			w.asking = true
			return move{step: toStart, lease: l}
		}
		w.refused = true
		if !q.holder.seldomRenewed() { // otherwise it learns by itself if an operator removes it by hand
			return w.sleepUntil(0)
		}
		if q.readAt == 0 {
			q.readAt = now.Add(backoff.Jitter(readHeld))
		}
		if now < q.readAt {
			return w.sleepUntil(q.readAt)
		}
		q.readAt = 0
		return move{step: toRead}
	case c.cleaner.May(w.key): // our own claim may hold the key: when it is cleaned up, that wakes us
		q.view.Away()
		return w.sleepUntil(0)
	}
	v := &q.view
	if v.Failing() {
		if at := c.mayProbe(w.key, now); at > now {
			return w.sleepUntil(at)
		}
	}
	held := v.Held() || q.othersWait(now)
	switch m := v.Next(now); {
	case m.Ask:
		w.asking = true
		return move{step: toAsk, now: now, told: m.Told, claim: store.Claim{Place: v.Place, Pass: m.Pass, Offered: m.Offered, InLine: v.In, Held: held}}
	case m.Remove != "":
		return move{step: toRemove, place: m.Remove}
	default:
		return w.sleepUntil(m.Until)
	}
}

// readHeld is about how long a head does not read a key that this client holds, where the client
// would not learn otherwise that the key was taken away by hand.
const readHeld = 45 * time.Second

func (w *waiter) sleepUntil(t monotonic.Moment) move {
	if w.nudge == nil { // most waiters are served at once and need no channel
		w.nudge = make(chan struct{}, 1)
	}
	return move{step: toSleep, until: t}
}

// askForKey sends a claim for the head. If it returns neither a lease nor an error, the claim
// was refused, or failed while the head was waiting already, and the head goes on waiting.
func (c *Client) askForKey(w *waiter, m move) (*Lease, error) {
	lease, err := c.send(w, &m.claim, m.now)
	lease, tell, err := c.answered(w, m, lease, err)
	c.watch.Announce(tell...)
	if lease != nil && c.untold(w, m, lease.holding) {
		c.freed(w.key)
	}
	return lease, err
}

// untold reports whether those behind may share the key with a new holder, and nobody told them: as nobody
// told this one, or as another permit has run out since.
func (c *Client) untold(w *waiter, m move, h *holding) bool {
	if !w.terms.shares() || len(h.waiting()) == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := h.since.Add(c.clock.Since(h.granted)) // by the store's clock
	return !m.told || w.terms.mode == store.Permits && line.RanOut(w.queue.view.Seen, now)
}

// answered takes in the answer to a claim of the head, and returns whom to tell of it.
func (c *Client) answered(w *waiter, m move, lease *Lease, err error) (_ *Lease, tell []store.Notice, _ error) {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	q, place := w.queue, m.claim.Place
	w.asking = false
	if err == nil || store.IsVerdict(err) {
		c.recovered(now)
	}
	if lease != nil {
		if m.claim.Pass != "" {
			tell = offer(w.key, m.claim.Pass) // its waiter joins again, if it lives
		}
		q.served, q.view = place, line.View{Seen: q.view.Seen}
		return lease, tell, nil
	}
	if place == c.place {
		c.place = "" // it may stand in this line
	}
	var held *store.HeldError
	switch {
	case errors.As(err, &held):
		w.refused, w.fault = true, nil
		c.watchFor(q)
		q.view.Refused(&held.Status, m.now, now)
		return nil, wake.Wanted(&held.Status), nil
	case errors.As(err, new(*abandoned)), errors.Is(err, ErrClosed), errors.Is(err, ErrDisconnected), store.IsVerdict(err), !w.refused:
		// A claim that was not applied may have joined the line. One that goes on is seen to later: notGranted.
		q.view.Joined = q.view.Joined || !store.IsVerdict(err) && !errors.As(err, new(*abandoned))
		q.view.Look() // for the next in the queue: the news that this claim consumed may have been meant for it
		return nil, nil, err
	}
	w.fault = err
	q.view.Failed(now)
	c.probeAt = now.Add(probePause)
	c.nextProbe()
	return nil, nil, nil
}

// sleep waits until w has something to do. An error ends the wait for the key.
func (c *Client) sleep(w *waiter, until monotonic.Moment) error {
	wake, stopWake := c.clock.Timer(until)
	defer stopWake()
	giveUp, stopGiveUp := c.clock.Timer(w.patience)
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

// refusal returns the error of a waiter that leaves without the key. The error says that the key
// is held only if w knows it.
func (w *waiter) refusal(held *HeldError, err error) error {
	if !errors.As(err, new(*abandoned)) {
		return failed("acquire", w.key, err)
	}
	patience := errors.Is(err, errPatience)
	switch {
	case errors.Is(err, ErrClosed), !w.refused:
		return &fault{op: "acquire", key: w.key, err: err}
	case patience && w.fault == nil:
		return fmt.Errorf("%w: %w", held, errPatience)
	case patience:
		return fmt.Errorf("%w: %w; last fault: %w", held, errPatience, w.fault)
	case w.fault != nil:
		return fmt.Errorf("mongolock: acquire %q: %w: %w; last fault: %w", w.key, err, held, w.fault)
	}
	return fmt.Errorf("mongolock: acquire %q: %w: %w", w.key, err, held)
}
