package history

import (
	"slices"
	"time"
)

const (
	streakMost = 16                     // handoffs in a row inside a process, while others wait
	streakTime = 100 * time.Millisecond // and how long they may take
)

// A streak is the handoffs of a key inside a process, in a row.
type streak struct {
	count int
	since time.Duration
	known bool // others stood in line at the last grant
}

// isResume reports whether a write put a holder in the place of a ticket's.
func (q *queue) isResume(w *write) bool { return len(w.applied) == 1 && q.resumes[w.applied[0].Op] }

// handed reports whether a write put one holder in the place of another, and checks that a client
// does not do so for long while others wait. A ticket may be resumed at any time. The holder was
// alive when it was let go, as by a call that failed for another of its keys, or when the command was
// sent: who takes a key over knows that it is not.
func (q *queue) handed(w *write) bool {
	alive := slices.ContainsFunc(w.dropped, func(e Event) bool {
		h := q.holders[e.ID]
		if q.h.Still { // no date ends it
			h.until = max(h.until, h.wrote+q.h.TTL)
		}
		letGo, known := q.letGo[e.ID]
		if !known {
			letGo, known = q.failed[h.op]
		}
		return h.until > w.began || known && h.until > letGo
	})
	resumed := q.isResume(w)
	handed := resumed || alive && len(w.applied) == 1 && w.applied[0].Place == ""
	s := &q.streak
	if !handed || resumed || !s.known {
		s.count = 0
		return handed
	}
	if s.count == 0 {
		s.since = w.began
	}
	s.count++
	if s.count <= streakMost && w.began-s.since <= streakTime+q.tol {
		return true
	}
	for _, p := range q.before(len(q.line), w.at) {
		if p.client != w.client {
			q.violation("kept from others", w.at, "client %d hands it over inside for the %d. time in %v, while client %d waits", w.client, s.count, w.began-s.since, p.client)
			break
		}
	}
	return true
}
