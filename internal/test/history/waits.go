package history

import (
	"slices"
	"time"
)

// For how long nobody may take a key whose turn it is, because notices were lost.
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
	} else if over && at >= by.began-time.Second && p.mode.Shared && q.inOtherUse(p.mode, by.began-time.Second) {
		return // its caller gave up before that; the next one stands there again
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

// inOtherUse reports whether others have shared the key since then, in another mode than a sharer's.
func (q *queue) inOtherUse(m Mode, since time.Duration) bool {
	if left, was := q.lefts[!m.permits()]; was && left >= since {
		return true
	}
	for _, h := range q.holders {
		if h.mode.Shared && !compatible(h.mode, m) {
			return true
		}
	}
	return false
}
