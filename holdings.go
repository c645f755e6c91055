package mongolock

import (
	"maps"

	"github.com/mongolock/mongolock/internal/line"
)

// holdings are those of a client that are not settled. They are protected by the mu of the queues.
type holdings struct {
	first *holding
	none  chan struct{} // closed when there are none; made by noLeases
}

func (all *holdings) add(h *holding) {
	if h.next = all.first; h.next != nil {
		h.next.prev = h
	}
	all.first = h
}

// remove reports whether h was there.
func (all *holdings) remove(h *holding) bool {
	switch {
	case h.prev != nil:
		h.prev.next = h.next
	case all.first == h:
		all.first = h.next
	default:
		return false
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
	if all.first == nil && all.none != nil {
		close(all.none)
		all.none = nil
	}
	return true
}

// enter takes in a holding that was granted. It reports whether the queues are drained: then the
// holding is given back.
func (qs *queues) enter(h *holding) (drained bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.watchdog.Watch()
	qs.held.add(h)
	h.queue = qs.of(h.ref.Key)
	if h.terms.shares() {
		h.queue.sharers++
	} else {
		h.queue.holder = h
	}
	if h.terms.yields {
		qs.watch.Join()
		h.listens = true
		if qs.watch.Asked(h.ref.Key) != h.asked { // while the claim was under way, for this key or another
			qs.tasks.Go(func() { qs.read(h.ref.Key) })
		}
	}
	return qs.drained.Load()
}

// forget takes a settled holding out.
func (qs *queues) forget(h *holding) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	listed := qs.held.remove(h)
	if listed && h.listens {
		qs.watch.Leave()
	}
	switch q := h.queue; {
	case q.holder == h:
		q.holder, q.streak = nil, line.Streak{}
		q.look()
	case listed && h.terms.shares():
		q.sharers--
		q.look()
	}
}

// unsettled returns the holdings that are not settled.
func (qs *queues) unsettled() (all []*holding) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for h := qs.held.first; h != nil; h = h.next {
		all = append(all, h)
	}
	return all
}

// busy reports whether there is a holding or a waiter.
func (qs *queues) busy() bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.held.first != nil || qs.waiting > 0
}

// noLeases returns a channel that is closed once there are no holdings. Use it after drain.
func (qs *queues) noLeases() <-chan struct{} {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	all := &qs.held
	if all.none != nil {
		return all.none
	}
	none := make(chan struct{})
	if all.first == nil {
		close(none)
	} else {
		all.none = none
	}
	return none
}

// count adds the numbers of the queues to s.
func (qs *queues) count(s *Stats) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	now := qs.clock.Now()
	renewed := now
	for h := qs.held.first; h != nil; h = h.next {
		h.mu.Lock()
		held, at := h.err == nil && !h.over(now), max(h.granted, h.term.LastRenewal())
		h.mu.Unlock()
		if !held {
			s.Unreleased++
			continue
		}
		s.Held++
		if !h.terms.noRenewal {
			renewed = min(renewed, at)
		}
	}
	s.OldestRenewal = now.Sub(renewed)
	s.Waiters, s.Candidates, s.CleanUps = qs.waiting, qs.candidates, qs.cleaner.Len()
	for q := range maps.Values(qs.byKey.All) {
		if v := &q.view; q.head != nil && !q.head.candidate && v.Joined && v.Seen != nil {
			s.Ahead = max(s.Ahead, (&HeldError{Status: *v.Seen, Place: v.Place}).Ahead())
			if v.In {
				s.InLine++
			}
		}
		for w := q.head; w != nil; w = w.next { // a candidate may stand before others
			if !w.candidate {
				s.OldestWait = max(s.OldestWait, now.Sub(w.since))
				break
			}
		}
	}
	s.Feed = qs.watch.State()
}
