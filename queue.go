package mongolock

import (
	"context"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// How long a waiter sleeps at most, and how long its word lasts at least.
const (
	lookMost  = time.Minute
	wordLeast = 3 * time.Minute
	lookAgain = 50 * time.Millisecond // after a word was left
)

// A queue is the waiters of one client for one key, in order of arrival, and this
// client's own lease on it. Only the head talks to the store, and not even it
// while the client itself holds the key. Protected by Client.mu.
type queue struct {
	key        string
	holder     *Lease // the newest lease of this client that has the key alone, until it is settled
	sharers    int    // those of its leases that share the key
	head, tail *waiter
	woken      bool             // look again; latched for the key, so that a head which leaves does not eat it
	freed      bool             // and the key may be free, somebody said; with it woken is set
	lookAt     monotonic.Moment // when the head asks again without a wake-up
	again      monotonic.Moment // when the key is read once more, to be sure; zero: no need
	pause      time.Duration    // before that
	firm       int              // looks in a row that showed the holder our word was left with
	seen       *store.Status    // what the last refusal showed
	moved      monotonic.Moment // when a poll last saw it in other hands
	freeSeen   int              // refusals in a row that showed a free key
	faults     *backoff.Backoff
	word       monotonic.Moment // until when our word stands, by our reckoning
	reserved   time.Time        // the end of the writer's word that its own refusal showed
}

// A waiter is one Acquire. Its first fields do not change; the others are
// protected by Client.mu.
type waiter struct {
	ctx      context.Context
	key      string
	terms    *terms
	patience monotonic.Moment // MaxWait after the call; zero: none

	queue      *queue
	prev, next *waiter
	nudge      chan struct{} // of capacity 1: look again at what to do
	lease      *Lease        // handed over to it
	gone       bool          // it left; what is handed to it must be given back
	asking     bool          // a claim of its own is under way
	refused    bool          // it was told, or can tell, that the key is held
	fault      error         // the last one it rode out
}

// join puts a waiter at the end of the key's queue, and tells what to do there.
func (c *Client) join(ctx context.Context, key string, t *terms) (*waiter, move) {
	var patience monotonic.Moment
	if t.maxWait > 0 {
		patience = c.clock.Now().Add(t.maxWait)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queueOf(key)
	w := &waiter{ctx: ctx, key: key, terms: t, patience: patience, queue: q}
	c.waiting++
	if q.head == nil {
		q.head, q.tail, q.woken = w, w, true
	} else {
		w.prev, q.tail.next, q.tail = q.tail, w, w
		w.refused = !w.terms.shares() || !q.head.terms.shares() // behind others of this process
	}
	return w, c.decide(w)
}

// queueOf is the key's queue, a new one if need be. With c.mu held.
func (c *Client) queueOf(key string) *queue {
	q := c.queues[key]
	if q == nil {
		q = &queue{key: key}
		c.queues[key] = q
	}
	return q
}

// tidy drops a queue that nobody is in. With c.mu held.
func (c *Client) tidy(q *queue) {
	if q.head == nil && q.holder == nil && q.sharers == 0 {
		delete(c.queues, q.key)
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
			q.woken, q.freed = true, true // the next in line may share it
		}
		c.unlink(w)
		return lease, word, nil
	}
	status := q.status()
	w.refused = w.refused || q.head.refused
	word = c.wordLeft(w)
	c.unlink(w)
	return nil, word, w.gaveUp(status, err)
}

// status is what is known of who holds the key. With Client.mu held.
func (q *queue) status() store.Status {
	switch {
	case q.holder != nil:
		return q.holder.status()
	case q.seen != nil:
		return *q.seen
	}
	return store.Status{Key: q.key, Mode: store.Exclusive}
}

// sees reports whether the holders are those that were seen last.
func (q *queue) sees(s store.Status) bool {
	return q.seen != nil && slices.EqualFunc(s.Holders, q.seen.Holders, func(a, b store.Holder) bool { return a.ID == b.ID })
}

// unlink removes w, and passes the turn on if it was the head's. With c.mu held.
func (c *Client) unlink(w *waiter) {
	q := w.queue
	c.waiting--
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
		*q = queue{key: q.key, holder: q.holder, sharers: q.sharers} // the next to wait begins anew
		c.tidy(q)
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
	if !w.gone && !w.asking {
		w.lease = lease
		w.poke()
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	lease.giveBackUnseen(ErrReleased)
}

// wake makes the head ask for a key that may be free. With c.mu held.
func (c *Client) wake(key string) {
	if q := c.queues[key]; q != nil {
		q.wake()
	}
}

// wake is Client.wake, with Client.mu held.
func (q *queue) wake() {
	if q.head != nil && (q.sharers == 0 || q.head.terms.shares()) { // else it cannot be
		q.freed = true
		q.look()
	}
}

// look makes the head look at the key again. With Client.mu held.
func (q *queue) look() {
	if q.head != nil {
		q.woken = true
		q.head.poke()
	}
}

// leaveToOthers keeps the waiters of this process from a key that others left
// word for: being a round trip closer, they would win every time.
func (c *Client) leaveToOthers(key string) {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shy) >= 64 { // swept as it grows, so that it does not
		for k, until := range c.shy {
			if until < now {
				delete(c.shy, k)
			}
		}
	}
	c.shy[key] = now.Add(shyTime)
}
