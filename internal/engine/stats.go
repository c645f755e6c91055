package engine

import (
	"maps"
	"time"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// Stats are the numbers of an engine at one moment. The root package says what they mean.
type Stats struct {
	Package       string
	Held          int
	Unreleased    int
	Waiters       int
	Candidates    int
	InLine        int
	CleanUps      int
	Feed          store.FeedState
	Ahead         int
	OldestWait    time.Duration
	OldestRenewal time.Duration
}

// Stats returns the numbers.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Stats{Package: e.config.Package, Feed: e.reader.State()}
	e.core.count(&s, e.clock.Now())
	return s
}

func (c *core) count(s *Stats, now moment) {
	renewed := now
	for h := c.held; h != nil; h = h.next {
		if h.err != nil || h.term.over(now) {
			s.Unreleased++
			continue
		}
		s.Held++
		if !h.Terms.NoRenewal {
			renewed = min(renewed, max(h.granted, h.term.renewed))
		}
	}
	s.OldestRenewal = now.Sub(renewed)
	s.Waiters, s.Candidates, s.CleanUps = c.waiting, c.candidates, c.unknown
	for q := range maps.Values(c.keys.All) {
		if v := &q.view; q.head != nil && !q.head.Candidate && v.Joined && v.Seen != nil {
			s.Ahead = max(s.Ahead, (&store.HeldError{Status: *v.Seen, Place: v.Place}).Ahead())
			if v.In {
				s.InLine++
			}
		}
		for w := q.head; w != nil; w = w.next { // a candidate may stand before others
			if !w.Candidate {
				s.OldestWait = max(s.OldestWait, now.Sub(w.since))
				break
			}
		}
	}
}

// Waiting tells what the engine does about a key. It is for tests.
func (e *Engine) Waiting(name string) inside.Waiting {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.core.keys.All[name]
	if q == nil || q.head == nil {
		return inside.Waiting{}
	}
	asking := q.claim != nil
	return inside.Waiting{Refused: q.head.refused && !asking, Asleep: q.view.Seen != nil && !asking && !q.view.Woken()}
}

// Linger sets how long the feed stays open without waiters. It is for tests.
func (e *Engine) Linger(d time.Duration) { e.reader.Linger = d }

// StoreExpiry returns until when the store honours the hold: its deadline and its margin. It is for tests.
func (h *Hold) StoreExpiry() time.Time {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.clock.Time(h.term.trusted().Add(h.term.margin))
}

// Abandon makes the hold give nothing back, as if its process had died. It is for tests.
func (h *Hold) Abandon() {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	h.state = settled
}
