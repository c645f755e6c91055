package mongolock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/places"
	"github.com/mongolock/mongolock/store"
)

// A queue has the waiters of one client for one key, first come, first served, and what this
// client itself holds of the key. Only the head talks to the store: it stands for the client in
// the line of the key, and waits even without that while the client holds the key alone. A queue
// is protected by the mu of the queues.
type queue struct {
	key        string
	holder     *holding // the newest one of this client that has the key alone, until it is settled
	sharers    int      // holdings of this client that share the key
	head, tail *waiter
	view       line.View        // the head's
	watched    bool             // the client's watch counts this queue
	readAt     monotonic.Moment // when the head reads a key that this client holds; zero: no need

	streak    line.Streak      // of the holder
	served    store.Place      // that was granted last
	others    []store.Place    // who waited when this client last released the key
	othersAt  monotonic.Moment // when that was; zero: never
	freedAt   monotonic.Moment // when this client last freed the key while many waited
	expected  []store.Place    // they, until check
	check     *time.Timer      // then this client sees whether one of them came; nil: no need
	offeredAt monotonic.Moment // when this client was last offered the key, and nobody waited yet; zero: never
}

// othersFor is how long other processes are assumed to wait, after a release found them waiting.
const othersFor = 10 * time.Second

// A waiter is one call of Acquire. Its first fields are constant; the others are protected by
// the mu of the queues.
type waiter struct {
	ctx      context.Context
	key      string
	terms    *terms
	patience monotonic.Moment // MaxWait after the call; zero: none
	resumes  *ticket          // nil but for Resume

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
	return store.Status{
		Key: h.ref.Key, Mode: h.terms.mode, Now: h.since.Add(h.client.clock.Since(h.granted)),
		Holders: []store.Holder{{
			ID: h.ref.ID, Owner: h.client.owner, Note: h.terms.note, Since: h.since,
			ExpireAt: h.since.Add(h.trusted().Sub(h.granted) + h.term.Margin()),
		}},
	}
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

// look makes the head ask for the key.
func (q *queue) look() {
	if q.head != nil && (q.sharers == 0 || q.head.terms.shares()) { // otherwise the key cannot be free for it
		q.view.Look()
		q.head.poke()
	}
}
