package mongolock

import (
	"context"
	"maps"
	"time"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// A queue is the waiters of one client for one key, first come, first served, and
// what this client itself holds of the key. Only the head talks to the store, and not
// even the head while the client holds the key alone. Protected by Client.mu.
type queue struct {
	key        string
	holder     *Lease // the newest lease of this client that has the key alone, until it is settled
	sharers    int    // leases of this client that share the key
	head, tail *waiter
	wakeUp     wakeUp // what the head was told and has not acted on
	plan       plan   // what the head does otherwise; begins with the first waiter

	wantedAt monotonic.Moment // when a release of this client last found a word; zero: none, or it was made use of
}

// A waiter is one Acquire. Its first fields do not change; the others are
// protected by Client.mu.
type waiter struct {
	ctx      context.Context
	key      string
	terms    *terms
	patience monotonic.Moment // MaxWait after the call; zero: none

	since     monotonic.Moment // when it joined the queue
	candidate bool             // of package leader

	queue      *queue
	prev, next *waiter
	nudge      chan struct{} // of capacity 1: decide again what to do
	lease      *Lease        // it was handed over
	gone       bool          // it left: a lease that is handed to it must be given back
	asking     bool          // a claim of its own is under way
	refused    bool          // it knows that the key is held
	fault      error         // of its last claim
}

// join puts a waiter at the end of the key's queue and decides its first move.
func (c *Client) join(ctx context.Context, key string, t *terms) (*waiter, move) {
	now := c.clock.Now()
	var patience monotonic.Moment
	if t.maxWait > 0 {
		patience = now.Add(t.maxWait)
	}
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
		q.head, q.tail = w, w // whose plan is to ask at once
	} else {
		w.prev, q.tail.next, q.tail = q.tail, w, w
		w.refused = !w.terms.shares() || !q.head.terms.shares() // behind others of this process
	}
	return w, c.decide(w, now)
}

// queueOf is the key's queue, a new one if need be. With c.mu held.
func (c *Client) queueOf(key string) *queue {
	q := c.queues[key]
	if q != nil {
		return q
	}
	if len(c.queues) >= c.sweepQueuesAt { // those that nobody is in, before the map grows
		maps.DeleteFunc(c.queues, func(_ string, q *queue) bool { return q.head == nil && q.holder == nil && q.sharers == 0 })
		c.sweepQueuesAt = max(sweepAt, 2*len(c.queues))
	}
	q = &queue{key: key}
	c.queues[key] = q
	return q
}

// settleIn puts the lease among those of its client. With Client.mu held.
func (l *Lease) settleIn(w *waiter) {
	c := l.client
	c.watchSleep()
	if l.after != nil {
		c.succeed(l, l.after)
	} else {
		c.enlist(l)
		if l.queue = w.queue; l.queue == nil || w.gone {
			l.queue = c.queueOf(l.key)
		}
		if l.terms.shares() {
			l.queue.sharers++
		} else {
			l.queue.holder = l
		}
	}
	if l.terms.linger > 0 && l.spare > 0 && !l.listens {
		c.watch.feed.Join()
		l.listens = true
		if c.asks.of(l.key).Load() != l.asks {
			l.heardWord() // before the grant was answered
		}
	}
}

// leave takes w out of the queue. A lease handed over in the last moment is not
// lost: the caller gets it.
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
			q.wakeUp = mayBeFree // the next in line may share it
		}
		c.unlink(w)
		return lease, word, nil
	}
	status := q.status()
	w.refused = w.refused || q.head.refused
	word = c.wordLeft(w)
	led := q.head == w
	c.unlink(w)
	if led && q.head != nil && q.head.terms.shares() != w.terms.shares() {
		q.look() // the word that was left is not the one that this waiter needs
	}
	return nil, word, w.gaveUp(status, err)
}

// status is what is known of who holds the key. With Client.mu held.
func (q *queue) status() store.Status {
	switch {
	case q.holder != nil:
		return q.holder.status()
	case q.plan.seen != nil:
		return *q.plan.seen
	}
	return store.Status{Key: q.key, Mode: store.Exclusive}
}

// status shows this lease as a store would, reckoned from its grant.
func (l *Lease) status() store.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return store.Status{
		Key: l.key, Mode: store.Exclusive, Limit: 1, Now: l.since.Add(l.client.clock.Since(l.granted)),
		Holders: []store.Holder{{
			ID: l.id, Owner: l.client.owner, Note: l.terms.note, Since: l.since,
			ExpireAt: l.since.Add(l.trusted().Sub(l.granted) + l.margin), Lingers: l.terms.linger > 0,
		}},
	}
}

// unlink removes w, and passes the turn on if it was the head's. With c.mu held.
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
		c.watch.end(&q.plan)
		q.wakeUp, q.plan = noWakeUp, plan{}
		return
	}
	q.head.poke()
}

// poke makes w decide again what to do. With Client.mu held.
func (w *waiter) poke() {
	if w.nudge == nil {
		return // it has not slept yet, and decides before it does
	}
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// deliver hands a lease to the waiter that it was claimed for.
func (c *Client) deliver(w *waiter, lease *Lease) {
	c.mu.Lock()
	if !w.gone && !w.asking {
		w.lease = lease
		w.poke()
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	lease.giveBackUnseen(ErrReleased)
}

// wake makes the head of the key's queue ask: the key may be free. With c.mu held.
func (c *Client) wake(key string) {
	if q := c.queues[key]; q != nil {
		q.wake()
	}
}

// When a release is announced beside the command that frees the key, and when once more after it.
const (
	wantedFor   = 10 * time.Second       // how long others count as waiting, as they did at this client's last release
	besideStill = 250 * time.Millisecond // if the command took no longer, its announcement counts
)

// announceBeside announces a release while the command that frees the key is under way, if
// others probably wait: that saves the first of them a trip. Zero if nothing was announced. A
// waiter that asks too early leaves its word again, and looks again and again (plan.early).
func (l *Lease) announceBeside() (at monotonic.Moment) {
	c := l.client
	if c.prompt || l.terms.shares() || l.keep() > 0 {
		return 0
	}
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	guess := l.queue.wantedAt != 0 && now.Sub(l.queue.wantedAt) <= wantedFor
	l.queue.wantedAt = 0
	l.mu.Lock()
	wanted := (l.wanted || guess) && l.release.state == releasing && l.release.loss == nil
	l.mu.Unlock()
	if !wanted || c.feed == nil || now < c.quietUntil || !c.enterLocked() {
		return 0
	}
	go func() {
		defer c.background.Done()
		c.announce([]string{l.key})
	}()
	return now
}

// freedAfter tells waiters that the key is free, as far as the announcement beside the release
// may have come too early for them. inTime says that it was answered, with what was there.
func (c *Client) freedAfter(key string, beside monotonic.Moment, inTime bool) {
	if knob.AnnouncedOnce && beside != 0 {
		return
	}
	if beside != 0 && inTime && c.clock.Since(beside) <= besideStill {
		return // forget woke those of this client
	}
	c.freed(key)
}

// leaveToOthers keeps the waiters of this client from a key for a moment, because
// waiters of other processes left word for it. Ours are a round trip closer and would
// win every time.
func (c *Client) leaveToOthers(key string) {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.leftToOthers) >= sweepAt {
		for k, until := range c.leftToOthers {
			if until < now {
				delete(c.leftToOthers, k)
			}
		}
	}
	c.leftToOthers[key] = now.Add(leaveAlone)
	if q := c.queues[key]; q != nil {
		q.wantedAt = now
	}
}
