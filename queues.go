package mongolock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mongolock/mongolock/internal/cleaner"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/places"
	"github.com/mongolock/mongolock/internal/suspend"
	"github.com/mongolock/mongolock/internal/swept"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// The queues of one client say, for each key, what the client holds of it and who waits for it here.
// They decide what each waiter does next (decide), and take in what comes of it (answered) and what is
// heard of the keys (heard.go). They send no claim: await, try and the holdings do what they say.
type queues struct {
	clock    *monotonic.Clock
	tasks    *tasks.Group
	watch    *wake.Watch
	cleaner  *cleaner.Cleaner
	places   *places.Keeper
	watchdog suspend.Watchdog

	draining chan struct{} // closed when nobody may wait any more
	drained  atomic.Bool   // draining is closed; set with mu held

	// mu protects what follows, and what says so in queue, waiter and holding. Called with it locked: decide,
	// of, stand, placeFor, unlink, saw, watchFor, has, nextProbe, recovered and mayProbe. The others lock it if they need it.
	mu         sync.Mutex
	held       holdings // those that are not settled
	byKey      swept.Map[string, *queue]
	waiting    int              // waiters in all queues
	candidates int              // those of package leader among the waiters
	slowUntil  monotonic.Moment // a place of this client was passed lately
	place      store.Place      // of the next head that wants a key alone; empty: not made yet
	probed     string           // the key whose head asks while claims fail; the others do not
	probeAt    monotonic.Moment // not before that; zero: no claim fails
}

// join puts a waiter at the end of the key's queue and decides its first move.
func (qs *queues) join(ctx context.Context, key string, t *terms, patience monotonic.Moment) (*waiter, move) {
	now := qs.clock.Now()
	as, _ := ctx.Value(inside.ShownKey{}).(inside.Shown)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(key)
	w := &waiter{ctx: ctx, key: key, terms: t, patience: patience, queue: q, since: now, candidate: as.Package == "leader"}
	qs.waiting++
	if w.candidate {
		qs.candidates++
	}
	if q.head == nil {
		q.head, q.tail = w, w
		qs.stand(q)
	} else {
		w.prev, q.tail.next, q.tail = q.tail, w, w
		w.refused = !w.terms.shares() || !q.head.terms.shares() // it waits behind others of this process
	}
	if h := q.holder; h != nil {
		h.mu.Lock()
		h.tellWanted()
		h.mu.Unlock()
	}
	return w, qs.decide(w, now)
}

// stand begins the view of a new head, with a place for it.
func (qs *queues) stand(q *queue) {
	t := q.head.terms
	q.view = line.View{Mode: t.mode, Limit: t.limit, Place: qs.placeFor(t), Seen: q.view.Seen}
	q.view.Look()
	q.view.WasOffered(q.offeredAt)
	if now := qs.clock.Now(); len(q.others) >= store.LineMost-1 && q.othersWait(now) {
		q.view.Outside(now)
	}
}

// placeFor returns a place for a head on these terms, that never stood in a line. Most heads are
// granted the key at once, and the next one has the same place: so it is made once.
func (qs *queues) placeFor(t *terms) store.Place {
	if t.shares() {
		return store.NewPlace(t.mode, t.limit, t.weight, qs.watch.Address())
	}
	if qs.place == "" {
		qs.place = store.NewPlace(t.mode, t.limit, 1, qs.watch.Address())
	}
	return qs.place
}

// of returns the key's queue, and makes one if there is none.
func (qs *queues) of(key string) *queue {
	q := qs.byKey.All[key]
	if q != nil {
		return q
	}
	q = &queue{key: key}
	qs.byKey.Put(key, q, func(_ string, q *queue) bool {
		return q.head == nil && q.holder == nil && q.sharers == 0 && q.check == nil
	})
	return q
}

// leave takes w out of the queue. If a lease was handed to it at the last moment, the caller
// gets that.
func (qs *queues) leave(w *waiter, lease *Lease, err error) (*Lease, error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w.gone = true
	if lease == nil {
		lease = w.lease
	}
	q := w.queue
	if lease != nil {
		w.gaveUp = qs.unlink(w)
		if lease.holding.terms.shares() {
			q.look() // the next in the queue may share the key
		}
		return lease, nil
	}
	held := &HeldError{Status: q.status()}
	held.Here = qs.has(q, held.Holders)
	w.refused = w.refused || q.head.refused
	if q.head == w && q.view.In {
		held.Place = q.view.Place
	}
	w.gaveUp = qs.unlink(w)
	return nil, w.refusal(held, err)
}

// unlink removes w, and passes the turn on if w was the head. The next head takes over the place
// of the head in the line, if it asks in the same mode. Otherwise unlink
// returns the place, to be given up.
func (qs *queues) unlink(w *waiter) (unused places.Unused) {
	q := w.queue
	led := q.head == w
	qs.waiting--
	if w.candidate {
		qs.candidates--
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
	if q.head == nil || !q.view.Serves(q.head.terms.mode, q.head.terms.limit, q.head.terms.weight) {
		if q.view.Joined {
			unused = places.Unused{Key: q.key, Place: q.view.Place, Seen: q.view.In}
		}
		if q.head == nil {
			q.view, q.readAt = line.View{}, 0
			if q.watched {
				q.watched = false
				qs.watch.Leave()
			}
		} else {
			qs.stand(q)
		}
	}
	if q.head != nil {
		q.head.poke()
	}
	if qs.probed == q.key && !q.view.Failing() {
		qs.nextProbe()
	}
	return unused
}

// deliver hands a lease to the waiter that it was claimed for, and goes on with its streak.
func (qs *queues) deliver(w *waiter, lease *Lease, s line.Streak) {
	qs.mu.Lock()
	w.queue.streak = s
	if !w.gone && !w.asking {
		w.lease = lease
		w.poke()
		qs.mu.Unlock()
		return
	}
	qs.mu.Unlock()
	lease.holding.giveBackUnseen(ErrReleased)
}

// notGranted gives up the place of a claim that was answered when its waiter had left. After a
// fault it may be in line, too: the store may have applied what it did not answer. It runs as
// background work.
func (qs *queues) notGranted(w *waiter, p store.Place, err error) {
	if w.queue == nil || p == "" {
		return
	}
	refused := errors.Is(err, ErrHeld)
	if !refused && (store.IsVerdict(err) || errors.Is(err, ErrClosed) || errors.Is(err, ErrDisconnected)) {
		return
	}
	qs.mu.Lock()
	q := w.queue
	unused := q.head == nil || q.view.Place != p
	q.view.Joined = q.view.Joined || !unused
	qs.mu.Unlock()
	if unused && qs.places.Add(places.Unused{Key: w.key, Place: p, Seen: refused}) {
		qs.places.Work()
	}
}

// sawLine remembers who waited when h was released, before forget wakes the waiters.
func (qs *queues) sawLine(h *holding, e store.Ended) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := h.queue; len(e.Line) > 0 || q.others != nil {
		q.others, q.othersAt = e.Line, qs.clock.Now()
	}
}

// drain ends the waits, refuses new calls of Acquire and gives up all places in lines. It returns whom to tell
// of keys that were freed: this client will not see whether somebody comes for them.
func (qs *queues) drain() (tell []store.Notice) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.drained.Swap(true) {
		return nil
	}
	close(qs.draining)
	for _, key := range slices.Sorted(maps.Keys(qs.byKey.All)) {
		q := qs.byKey.All[key]
		if q.view.Joined {
			q.view.Joined = false
			qs.places.GiveUp(key, q.view.Place)
		}
		if q.check != nil && q.check.Stop() {
			tell = append(tell, wake.Notices(store.KindNext, key, q.expected)...)
		}
	}
	return tell
}

// isHere reports whether one of the holders is a lease that this client has.
func (qs *queues) isHere(key string, holders []Holder) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey.All[key]
	return q != nil && qs.has(q, holders)
}

func (qs *queues) has(q *queue, holders []Holder) bool {
	is := func(h *holding) bool { return h.queue == q && h.why() == nil && h.isAmong(holders) }
	if q.sharers == 0 {
		return q.holder != nil && is(q.holder)
	}
	for h := qs.held.first; h != nil; h = h.next {
		if is(h) {
			return true
		}
	}
	return false
}
