package history

import (
	"slices"
	"time"
)

// For how long nobody waits whose turn it is, because others died, or because notices were lost.
const (
	lookAgain = 30 * time.Second // between two claims of one that waits, at most
	ofCalls   = 10 * time.Second // how long a call may take, where commands are lost
)

// A wait is a call that waits for a key.
type wait struct {
	from, to time.Duration
	mode     Mode
	several  bool // keys together: it may be waiting for another of them
}

// waits returns the waits for each key, by client, in the order of their calls.
func (h *History) waits() map[string]map[int][]*wait {
	all, answers := map[string]map[int][]*wait{}, h.answers()
	for _, e := range h.Events {
		if e.Kind != Called || e.Note != "" { // the others do not stand in line
			continue
		}
		w := &wait{e.At, h.End, e.Mode, e.Until == 0}
		if at, answered := answers[e.Op]; answered {
			w.to = at
		}
		if all[e.Key] == nil {
			all[e.Key] = map[int][]*wait{}
		}
		all[e.Key][e.Client] = append(all[e.Key][e.Client], w)
	}
	return all
}

// quiet reports whether all commands arrive, and are answered at once, unless their client died.
func (h *History) quiet() bool { return h.NoFaults || h.Deaths }

// forgotten checks that a place does not stay for long in line when nobody of its client waits with it.
func (q *queue) forgotten(p *standing, until time.Duration) {
	if q.h.GhostLimit == 0 || p.unknown { // when the turn of such a place comes, its client is told, and removes it
		return
	}
	if p.until != 0 {
		until = min(until, p.until)
	}
	last, call := p.stood, time.Duration(0)
	for _, w := range q.waits[p.client] {
		if w.mode == p.mode && w.from <= until {
			last = max(last, w.to)
		}
		if w.mode == p.mode && w.from <= p.stood { // later ones have places of their own
			call = max(call, w.from)
		}
	}
	if limit := q.h.GhostLimit; until-last > limit && !q.h.hindered(p.client, call, last, last+limit) {
		q.violation("place forgotten", last+limit, "nobody of client %d waits at its place for %v", p.client, until-last)
	}
}

// givenUp checks that a client whose caller goes on waiting does not give up its place.
func (q *queue) givenUp(p *standing, by *write) {
	if !q.h.quiet() || len(by.applied) > 0 || p.late {
		return
	}
	if slices.ContainsFunc(q.line, func(o *standing) bool { return o != p && o.client == p.client && o.mode == p.mode }) {
		return // of a call that is over, whose claim came late
	}
	if at, over := q.answers[p.op]; over && at >= by.at && at < by.at+time.Second {
		return // it fails: the key is in use in another mode
	}
	goesOn := false
	for _, w := range q.waits[p.client] {
		if w.from < by.began && w.to > by.at+time.Second {
			if w.mode != p.mode {
				return // the next of its queue needs another place
			}
			goesOn = goesOn || !w.several
		}
	}
	if goesOn {
		q.violation("place given up", by.at, "client %d leaves the line, and its caller goes on waiting", p.client)
	}
}

// A readiness is since when a waiter could have had the key, if nobody came before it.
type readiness struct {
	since time.Duration // never: it could not
	ahead int           // who comes before it, dead or alive, unless its place is stale
	known int           // as it was when it last asked: nobody tells it that it came closer
	polls bool          // the first of them hears no notices
	late  bool          // a holder ran out, or a place before it is stale: nobody said so
}

// prepare says when the nth in line could have the key, as things are.
func (q *queue) prepare(p *standing, n int, at time.Duration) {
	r := readiness{since: at}
	beside, permits, polls, all, other := 0, 0, false, time.Duration(0), time.Duration(0)
	for _, h := range q.holders {
		switch over := h.until + q.tol; {
		case over <= at:
			r.late = r.late || compatible(h.mode, p.mode) // it kept nobody out but those before us
		case compatible(h.mode, p.mode):
			beside, all = beside+h.mode.takes(), max(all, over)
		default:
			r.since, r.late = max(r.since, over), true
		}
	}
	fits := p.mode.Limit - p.mode.takes() // how many permits may be taken for those for whom it waits, and for it
	for _, o := range q.line[:n] {
		if o.until != 0 && o.until+q.tol <= at {
			r.late = true
			continue
		}
		if compatible(o.mode, p.mode) {
			fits = min(fits, o.mode.Limit-o.mode.takes())
		}
		if r.ahead++; r.ahead == 1 {
			r.polls = o.graced() == gracePolled
		}
		if beside > 0 && compatible(o.mode, p.mode) && p.mode.permits() {
			if permits++; permits == 1 {
				polls = o.graced() == gracePolled
			}
		}
		if beside > 0 && !compatible(o.mode, p.mode) {
			until := o.until
			if !o.mode.Shared { // nobody tells when it does not count any more: readers look
				until = max(until-reserveLess, at+lookEvery)
			}
			other = max(other, until+q.tol)
		}
	}
	if p.mode.permits() && beside > fits {
		r.since, r.late = max(r.since, all), true
	}
	if beside > 0 && other > 0 { // a writer that may be dead, or somebody who asks in another mode, keeps it out from a key that others share
		r.since, r.ahead, r.polls = max(r.since, other), permits, polls
	}
	if was := p.ready; was.since <= at && was.ahead == r.ahead && r.since <= at {
		r = was
	}
	r.known = max(r.ahead, p.ready.known)
	p.ready = r
}

// patience is for how long a waiter may have to wait that could have the key.
func (q *queue) patience(r readiness) time.Duration {
	limit, next := q.h.IdleLimit, grace
	if r.polls {
		next = gracePolled
	}
	switch {
	case r.ahead == 1:
		limit += time.Duration(min(r.known, furthest)) * next
	case r.ahead > 1: // the next may be dead, too: others look now and then, and remove one after the other
		limit += lookAgain + time.Duration(r.ahead*furthest)*gracePolled
	}
	if r.late {
		limit += furthest * gracePolled
	}
	if !q.h.quiet() {
		limit += lookAgain + ofCalls + q.h.TTL
	}
	return limit
}

// stranded checks that nobody who could have the key waits for long.
func (q *queue) stranded(until time.Duration) {
	if q.h.IdleLimit == 0 || q.h.Prompt {
		return
	}
	for _, p := range q.line {
		limit := q.patience(p.ready)
		from, to := p.ready.since, p.ready.since+limit
		if p.ready.since == never || to >= until {
			continue
		}
		waits := slices.ContainsFunc(q.waits[p.client], func(w *wait) bool { return w.mode == p.mode && w.from <= from && w.to > to })
		if waits && !q.h.hindered(p.client, from, from, to) {
			q.violation("stranded", to, "client %d could have it for %v, with %d before it", p.client, limit, p.ready.ahead)
		}
		p.ready.since = never
	}
}
