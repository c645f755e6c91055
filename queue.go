package mongolock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/places"
	"github.com/mongolock/mongolock/store"
)

// A queue has the waiters of one client for one key, first come, first served, and what this
// client itself holds of the key. Only the head talks to the store: it stands for the client in
// the line of the key, and waits even without that while the client holds the key alone. A queue
// is protected by Client.mu.
type queue struct {
	key        string
	holder     *holding // the newest one of this client that has the key alone, until it is settled
	sharers    int      // holdings of this client that share the key
	head, tail *waiter
	view       line.View        // the head's
	watched    bool             // the client's watch counts this queue
	readAt     monotonic.Moment // when the head reads a key that this client holds; zero: no need

	streak    streak           // of the holder
	served    store.Place      // that was granted last
	others    []store.Place    // who waited when this client last released the key
	othersAt  monotonic.Moment // when that was; zero: never
	offeredAt monotonic.Moment // when this client was last offered the key, and nobody waited yet; zero: never
}

// othersFor is how long other processes are assumed to wait, after a release found them waiting.
const othersFor = 10 * time.Second

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
	gaveUp     places.Unused // its place in the line, which nobody uses now that it has left
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
		q.head, q.tail = w, w
		c.stand(q)
	} else {
		w.prev, q.tail.next, q.tail = q.tail, w, w
		w.refused = !w.terms.shares() || !q.head.terms.shares() // it waits behind others of this process
	}
	if q.holder != nil {
		q.holder.tellLease()
	}
	return w, c.decide(w, now)
}

// stand begins the view of a new head, with a place for it.
func (c *Client) stand(q *queue) {
	t := q.head.terms
	q.view = line.View{Mode: t.mode, Limit: t.limit, Place: c.placeFor(t), Seen: q.view.Seen}
	q.view.Look()
	q.view.WasOffered(q.offeredAt)
}

// placeFor returns a place for a head on these terms, that never stood in a line. Most heads are
// granted the key at once, and the next one has the same place: so it is made once.
func (c *Client) placeFor(t *terms) store.Place {
	if t.shares() || t.priority > 0 {
		return store.NewPlace(t.mode, t.limit, c.watch.Address()).Weighing(t.weight).Before(t.priority)
	}
	if c.place == "" {
		c.place = store.NewPlace(t.mode, t.limit, c.watch.Address())
	}
	return c.place
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
	if h.terms.linger > 0 && h.spare > 0 || h.terms.yields {
		c.watch.Join()
		h.listens = true
		if c.asks.of(h.ref.Key).Load() != h.heard.asks {
			h.mayBeWanted()
		}
	}
}

// leave takes w out of the queue. If a lease was handed to it at the last moment, the caller
// gets that.
func (c *Client) leave(w *waiter, lease *Lease, err error) (*Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.gone = true
	if lease == nil {
		lease = w.lease
	}
	q := w.queue
	if lease != nil {
		w.gaveUp = c.unlink(w)
		if lease.terms.shares() {
			q.look() // the next in the queue may share the key
		}
		return lease, nil
	}
	held := &HeldError{Status: q.status(), Here: q.holdsIt()}
	w.refused = w.refused || q.head.refused
	if q.head == w && q.view.In {
		held.Place = q.view.Place
	}
	w.gaveUp = c.unlink(w)
	return nil, w.refusal(held, err)
}

// status returns what is known of the key's holders.
func (q *queue) status() store.Status {
	switch {
	case q.holder != nil:
		return q.holder.status()
	case q.view.Seen != nil:
		return *q.view.Seen
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
		Key: h.ref.Key, Mode: h.terms.mode, Limit: h.terms.limit, Now: h.since.Add(h.client.clock.Since(h.granted)),
		Holders: []store.Holder{{
			ID: h.ref.ID, Owner: h.client.owner, Note: h.terms.note, Since: since,
			ExpireAt: h.since.Add(h.trusted().Sub(h.granted) + h.term.Margin()), Lingers: h.lingers,
		}},
	}
}

// unlink removes w, and passes the turn on if w was the head. The next head takes over the place
// of the head in the line, if it asks in the same mode, with the same priority. Otherwise unlink returns the place, to be
// given up.
func (c *Client) unlink(w *waiter) (unused places.Unused) {
	q := w.queue
	led := q.head == w
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
	if !led {
		return unused
	}
	if q.head == nil || !q.view.Serves(q.head.terms.mode, q.head.terms.limit, q.head.terms.weight, q.head.terms.priority) {
		if q.view.Joined {
			unused = places.Unused{Key: q.key, Place: q.view.Place, Seen: q.view.In}
		}
		if q.head == nil {
			q.view, q.readAt = line.View{}, 0
			if q.watched {
				q.watched = false
				c.watch.Leave()
			}
		} else {
			c.stand(q)
		}
	}
	if q.head != nil {
		q.head.poke()
	}
	if c.probed == q.key && !q.view.Failing() {
		c.nextProbe()
	}
	return unused
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

// look makes the head ask for the key.
func (q *queue) look() {
	if q.head != nil && (q.sharers == 0 || q.head.terms.shares()) { // otherwise the key cannot be free for it
		q.view.Look()
		q.head.poke()
	}
}
