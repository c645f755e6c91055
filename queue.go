package mongolock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// A queue has the waiters of one client for one key, first come, first served, and what this
// client itself holds of the key. Only the head talks to the store, and even the head does not
// while the client holds the key alone. A queue is protected by Client.mu.
type queue struct {
	key        string
	holder     *holding // the newest one of this client that has the key alone, until it is settled
	sharers    int      // holdings of this client that share the key
	head, tail *waiter
	wakeUp     wakeUp // a hint that the head has not acted on
	plan       plan   // when the head acts without a hint; begins with the first waiter

	streak   streak           // of the holder, or of the permits of this client
	wantedAt monotonic.Moment // when a release of this client last found a word; zero: never, or it was used already
}

// A waiter is one call of Acquire. Its first fields are constant; the others are protected by
// Client.mu.
type waiter struct {
	ctx      context.Context
	key      string
	terms    *terms
	patience monotonic.Moment // MaxWait after the call; zero: none

	since     monotonic.Moment // when it joined the queue
	candidate bool             // it is of package leader

	queue      *queue
	prev, next *waiter
	nudge      chan struct{} // of capacity 1: decide again what to do
	lease      *Lease        // the lease that it was handed
	gone       bool          // it left: a lease that is handed to it must be given back
	asking     bool          // a claim of its own is under way
	refused    bool          // it knows that the key is held
	fault      error         // the error of its last claim
}

// join puts a waiter at the end of the key's queue and decides its first move.
func (c *Client) join(ctx context.Context, key string, t *terms, patience monotonic.Moment) (*waiter, move) {
	now := c.clock.Now()
	as, _ := ctx.Value(inside.ShownKey{}).(inside.Shown)
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queueOf(key)
	w := &waiter{ctx: ctx, key: key, terms: t, patience: patience, queue: q, since: now, candidate: as.Package == "leader"}
	c.waiting++
	if w.candidate {
		c.candidates++
	}
	if q.head == nil {
		q.head, q.tail = w, w // a head's plan begins with a claim
	} else {
		w.prev, q.tail.next, q.tail = q.tail, w, w
		w.refused = !w.terms.shares() || !q.head.terms.shares() // it waits behind others of this process
	}
	return w, c.decide(w, now)
}

// queueOf returns the key's queue, and makes one if there is none. Call it with c.mu held.
func (c *Client) queueOf(key string) *queue {
	q := c.queues.All[key]
	if q != nil {
		return q
	}
	q = &queue{key: key}
	c.queues.Put(key, q, func(_ string, q *queue) bool { return q.head == nil && q.holder == nil && q.sharers == 0 })
	return q
}

// settleIn enters the holding in the client's list and queue.
func (h *holding) settleIn(w *waiter) {
	c := h.client
	c.watchSleep()
	c.held.add(h)
	if h.queue = w.queue; h.queue == nil || w.gone {
		h.queue = c.queueOf(h.ref.Key)
	}
	if h.terms.shares() {
		h.queue.sharers++
	} else {
		h.queue.holder = h
	}
	if h.terms.linger > 0 && h.spare > 0 {
		c.watch.Join()
		h.listens = true
		if c.asks.of(h.ref.Key).Load() != h.heard.asks {
			h.heardWord() // a waiter asked before the grant was answered
		}
	}
}

// leave takes w out of the queue. If a lease was handed to it at the last moment, the caller
// gets that.
func (c *Client) leave(w *waiter, lease *Lease, err error) (*Lease, error) {
	lease, word, err := c.leaveLine(w, lease, err)
	c.takeBack(w.key, word)
	return lease, err
}

func (c *Client) leaveLine(w *waiter, lease *Lease, err error) (_ *Lease, word time.Time, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.gone = true
	if lease == nil {
		lease = w.lease
	}
	q := w.queue
	if lease != nil {
		if lease.terms.shares() {
			q.wakeUp = mayBeFree // the next in line may share the key
		}
		c.unlink(w)
		return lease, word, nil
	}
	status := q.status()
	w.refused = w.refused || q.head.refused
	word = q.wordLeft(w)
	led := q.head == w
	c.unlink(w)
	if led && q.head != nil && q.head.terms.shares() != w.terms.shares() {
		q.look() // the next waiter needs another word than the one that was left
	}
	return nil, word, w.gaveUp(status, err)
}

// status returns what is known of the key's holders.
func (q *queue) status() store.Status {
	switch {
	case q.holder != nil:
		return q.holder.status()
	case q.plan.seen != nil:
		return *q.plan.seen
	}
	return store.Status{Key: q.key, Mode: store.Exclusive}
}

// status describes the holding as a store would, by calculation from its grant.
func (h *holding) status() store.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := h.since
	if h.lease != nil {
		since = since.Add(h.lease.granted.Sub(h.granted))
	}
	return store.Status{
		Key: h.ref.Key, Mode: store.Exclusive, Limit: 1, Now: h.since.Add(h.client.clock.Since(h.granted)),
		Holders: []store.Holder{{
			ID: h.ref.ID, Owner: h.client.owner, Note: h.terms.note, Since: since,
			ExpireAt: h.since.Add(h.trusted().Sub(h.granted) + h.term.Margin()), Lingers: h.terms.linger > 0,
		}},
	}
}

// unlink removes w, and passes the turn on if w was the head. Call it with c.mu held.
func (c *Client) unlink(w *waiter) {
	q := w.queue
	c.waiting--
	if w.candidate {
		c.candidates--
	}
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
		if q.plan.watched {
			c.watch.Leave()
		}
		q.wakeUp, q.plan = noWakeUp, plan{}
		return
	}
	q.head.poke()
}

// poke makes w decide again what to do.
func (w *waiter) poke() {
	if w.nudge == nil {
		return // it has not slept yet, and decides before it does
	}
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// deliver hands a lease to the waiter that it was claimed for, and goes on with its streak.
func (c *Client) deliver(w *waiter, lease *Lease, s streak) {
	c.mu.Lock()
	w.queue.streak = s
	if !w.gone && !w.asking {
		w.lease = lease
		w.poke()
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	lease.holding.giveBackUnseen(ErrReleased)
}

// wake makes the head of the key's queue ask for the key, because it may be free. Call it with
// c.mu held.
func (c *Client) wake(key string) {
	if q := c.queues.All[key]; q != nil {
		q.wake()
	}
}

// These decide whether a release is announced while its command is under way, and whether it is
// announced again afterwards.
const (
	wantedFor   = 10 * time.Second       // how long other processes are assumed to wait, after a release found them waiting
	besideStill = 250 * time.Millisecond // if the command took no longer, the announcement made beside it is enough
)

// announceBeside announces a release while the command that frees the key is under way, if
// other processes probably wait: that saves the first of them a round trip. It returns zero if
// it announced nothing. A waiter that asks too early leaves its word again, and keeps reading
// the key (plan.early).
func (h *holding) announceBeside() (at monotonic.Moment) {
	c := h.client
	if c.prompt || h.terms.shares() || h.keep() > 0 {
		return 0
	}
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	guess := h.queue.wantedAt != 0 && now.Sub(h.queue.wantedAt) <= wantedFor
	h.queue.wantedAt = 0
	h.mu.Lock()
	wanted := (h.wanted || guess) && h.release.state == releasing && h.release.loss == nil
	h.mu.Unlock()
	if !wanted || !c.watch.TryAnnounce(h.ref.Key) {
		return 0
	}
	return now
}

// freedAfter tells waiters that the key is free, unless the announcement made beside the
// release came late enough for them. inTime says that the command was answered and found the
// holder.
func (h *holding) freedAfter(beside monotonic.Moment, inTime bool) {
	c := h.client
	if beside != 0 && inTime && c.clock.Since(beside) <= besideStill {
		return // forget woke this client's waiters
	}
	c.freed(h.ref.Key)
}

// leaveToOthers keeps the waiters of this client from a key for a moment, because waiters of
// other processes left word for it. Those of this client are a round trip closer and would
// otherwise always win.
func (h *holding) leaveToOthers() {
	c, key := h.client, h.ref.Key
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leftToOthers.Put(key, now.Add(leaveAlone), func(_ string, until monotonic.Moment) bool { return until < now })
	if q := c.queues.All[key]; q != nil {
		q.wantedAt = now
	}
}
