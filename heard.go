package mongolock

import (
	"maps"
	"slices"

	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/store"
)

// The exported methods of queues are wake.Waiters: what is heard or read of the keys. They take mu.

// Waiting reports whether there is a waiter.
func (qs *queues) Waiting() bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.waiting > 0
}

// Keys returns the keys whose heads were refused and are not asking, in order, so that a
// simulation can be repeated. With again, a head that is asking asks once more, and keys are among
// them that somebody may wait for without having told their holder here.
func (qs *queues) Keys(again bool) (keys []string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for key, q := range qs.byKey.All {
		switch {
		case q.head == nil:
			if again && q.holder != nil && q.holder.terms.yields {
				keys = append(keys, key)
			}
		case q.head.asking && again:
			q.view.Look()
		case q.holder == nil && q.view.Seen != nil && !q.head.asking:
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Read handles what a read showed, and reports whether a key is worth polling often: one that has
// changed since it was last seen.
func (qs *queues) Read(all []store.Status) (often bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for i := range all {
		often = qs.saw(&all[i]) || often
	}
	return often
}

// Ask makes the heads of keys ask, because the keys could not be read.
func (qs *queues) Ask(keys []string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, key := range keys {
		if q := qs.byKey.All[key]; q != nil {
			q.look()
		}
	}
}

// askAll makes the heads of all keys ask.
func (qs *queues) askAll() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(qs.byKey.All)) { // in order, so that a simulation can be repeated
		qs.byKey.All[key].look()
	}
}

// Offered says that it is the turn of a place of this client; without a place, that of its head.
func (qs *queues) Offered(key string, p store.Place) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	switch q := qs.of(key); {
	case q.head != nil && (p == "" || p == q.view.Place):
		q.view.HeardOffer(qs.clock.Now())
		q.head.poke()
	case p == "":
		q.offeredAt = qs.clock.Now()
	case p != q.served: // nobody waits with it any more
		qs.places.Offered(key, p)
	}
}

// Next says that a place of this client comes after those to whom the key is offered.
func (qs *queues) Next(key string, p store.Place) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey.All[key]; q != nil && q.head != nil && p == q.view.Place {
		q.view.HeardNext(qs.clock.Now())
		q.head.poke()
	}
}

// Wanted tells the holder of a key that another process waits for it.
func (qs *queues) Wanted(key string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey.All[key]; q != nil && q.holder != nil {
		q.holder.heardWaiter()
	}
}

// watchFor makes sure that a head which was refused learns when it is its turn, until its queue
// is empty.
func (qs *queues) watchFor(q *queue) {
	first := !q.watched
	if first {
		q.watched = true
		qs.watch.Join()
		qs.watchdog.Watch()
	}
	qs.watch.Refused(first)
}

// read reads one key for its head, while the head sleeps.
func (qs *queues) read(key string) {
	if all, err := qs.watch.Look(key); err == nil {
		qs.Read(all)
	}
}

// saw handles what a read showed of one key, and reports whether that has changed.
func (qs *queues) saw(s *store.Status) (changed bool) {
	q := qs.byKey.All[s.Key]
	if q != nil && q.holder != nil && q.holder.terms.yields && q.holder.isAmong(s.Holders) && len(s.Waiting("")) > 0 {
		q.holder.heardWaiter() // a read from before its grant may show the place that it waited at
	}
	switch {
	case q == nil || q.head == nil || q.head.asking:
		return false
	case q.holder != nil:
		q.holder.checkIn(s)
		return false
	}
	last := q.view.Seen
	q.view.Read(s, qs.clock.Now())
	q.head.poke()
	return last == nil || line.Changed(last, s)
}
