package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// How long a key may idle while somebody alive waits for it, docs/guarantees.md: once, however many died.
const (
	idleMost   = 1500 * time.Millisecond
	idlePolled = 3500 * time.Millisecond // if a waiter hears no notices

	stepMinded = 10 * time.Minute // no date is trusted after a clock was seen to be stepped, a server's or one's own
	epochAged  = time.Minute      // a client that had a reason to doubt asks again which election it is
	clockAged  = 5 * time.Minute  // one that had none does, before a claim
)

// A waiter is a wait, as its client has to know of its turn.
type waiter struct {
	*wait
	client int
	polls  bool          // it hears no notices
	could  time.Duration // since when it could have the key; never: it could not
	polled bool          // one that stands in line since then hears none
	late   time.Duration // since when it has waited for too long; 0: it has not
	line   []string      // who stood in line then
}

// waiting returns all who wait for a key, in the order of their calls.
func waiting(waits map[int][]*wait, polls map[int]bool) (all []*waiter) {
	for client, list := range waits {
		for _, w := range list {
			all = append(all, &waiter{wait: w, client: client, polls: polls[client], could: never})
		}
	}
	slices.SortFunc(all, func(a, b *waiter) int { return cmp.Compare(a.from, b.from) })
	return all
}

// idles checks that no key idles for long while somebody waits who could have it, up to a time up to which
// nothing was written. Places of the dead excuse nothing. What does:
//
//   - holders, until they are over, and where no clock can tell, until they were seen still for their TTL;
//   - while others share the key: a writer, a heavy claim and one of fewer permits than are taken, dead or
//     alive, until their places are stale;
//   - one that died and said, since the key was free, that it lives: for its time from then on;
//   - a holder that left or ran out, though there was a permit already, or the key was free: all wait from then on;
//   - for half a minute: that the process which freed the key was killed at once;
//   - what hindered the waiter itself, and an election;
//   - for half a minute and what a call may take: any other fault, by which a notice may be lost.
func (q *queue) idles(until time.Duration) {
	for _, w := range q.waiters {
		if w.from >= until {
			break
		}
		if since := q.could(w); w.could > q.now || since > max(q.now, w.from) {
			q.report(w, q.now)
			w.could, w.polled = since, false
		}
		if w.could == never {
			continue
		}
		w.polled = w.polled || slices.ContainsFunc(q.line, func(p *standing) bool { return polled(p.place) })
		end := min(until, w.to)
		from := q.begun(w, max(w.could, q.freed, q.silentSince(w, end)), end)
		if over := from + q.idleLimit(w, from, end); end > over && w.late == 0 && !q.h.hindered(w.client, from, from, over) {
			w.late, w.line = over, q.clients()
		}
		if w.to <= until || until == q.h.End {
			q.report(w, end)
		}
	}
	q.waiters = slices.DeleteFunc(q.waiters, func(w *waiter) bool { return w.to <= until })
}

// idleLimit returns for how long somebody who waits may not have what it could have, up to some end.
func (q *queue) idleLimit(w *waiter, from, end time.Duration) time.Duration {
	limit := idleMost
	if w.polls || w.polled {
		limit = idlePolled
	}
	if died, was := q.killed[q.freer]; was && died >= q.freed && died <= q.freed+limit { // it was to see who came
		limit += lookAgain
	}
	if end > from+limit && q.h.troubled(from-lookAgain, from+limit) {
		limit += lookAgain + ofCalls + q.h.TTL
	}
	return limit
}

// begun returns from when on one that could have the key since then waits for those before it: others that share
// the key may run out meanwhile. Where that has to be seen, each learns it at a time of its own.
func (q *queue) begun(w *waiter, from, end time.Duration) time.Duration {
	type span struct{ first, last time.Duration }
	var over []span
	for _, h := range q.holders {
		last := q.seenOver(h, w)
		over = append(over, span{min(h.over, last), last})
	}
	slices.SortFunc(over, func(a, b span) int { return cmp.Compare(a.last, b.last) })
	for _, known := range over {
		if known.last > from && known.first <= from+q.idleLimit(w, from, end) {
			from = known.last
		}
	}
	return from
}

// silentSince returns since when those that have died by the end, and stand before somebody who waits, or did until
// they were passed, do not say any more that they live.
func (q *queue) silentSince(w *waiter, end time.Duration) time.Duration {
	since := time.Duration(0)
	for _, p := range q.line {
		switch {
		case p.client == w.client && p.mode == w.mode:
			return max(since, p.silent)
		case q.deadBy(p.client, end):
			since = max(since, p.seen)
		}
	}
	return since
}

// report reports that a key idled until then, once for all who waited, if that was for too long.
func (q *queue) report(w *waiter, end time.Duration) {
	if w.late > q.idled {
		q.idled = end
		q.violation("idle", w.late, "it idles for %v, while client %d waits, whose call began at %v, with %q in line", end-w.could, w.client, w.from, w.line)
	}
	w.late = 0
}

// could returns since when somebody who waits could have the key, as things are from now on.
func (q *queue) could(w *waiter) time.Duration {
	n := q.place(w)
	if n < 0 && w.several { // it may be waiting for another key
		return never
	}
	since, shared, taken, most := max(q.now, w.from), time.Duration(0), w.mode.takes(), w.mode.Limit
	for _, h := range q.holders {
		switch over := q.seenOver(h, w); {
		case over <= q.now:
		case compatible(h.mode, w.mode):
			shared, taken = max(shared, over), taken+h.mode.takes()
		default:
			since = max(since, over)
		}
	}
	switch {
	case shared == 0:
		return since
	case n < 0: // it waits behind another of its client, or is about to join
		return max(since, shared)
	}
	held := taken - w.mode.takes()
	for _, p := range q.line[:n] {
		stale := p.until + q.tol
		if p.reserves() {
			stale -= reserveLess
		}
		switch {
		case p.until != 0 && stale <= q.now:
		case !compatible(p.mode, w.mode), p.reserves(), w.mode.permits() && held+p.mode.takes() > p.mode.Limit:
			if p.until == 0 {
				stale = shared
			}
			since = max(since, min(shared, stale))
		case w.mode.permits() && !q.isDead(p.client):
			taken, most = taken+1, min(most, p.mode.Limit)
		}
	}
	if w.mode.permits() && taken > most {
		return max(since, shared)
	}
	return since
}

// place returns where somebody who waits stands in line; -1: nowhere.
func (q *queue) place(w *waiter) int {
	return slices.IndexFunc(q.line, func(p *standing) bool { return p.client == w.client && p.mode == w.mode })
}

// looked returns when somebody who waits had looked at the key: at one of several as it joined the line.
func (q *queue) looked(w *waiter) time.Duration {
	if n := q.place(w); n >= 0 && w.several {
		return max(w.from, q.line[n].joined)
	}
	return w.from
}

// seenOver returns when somebody who waits may know that a holder is over. Where no clock can tell, it has
// to be seen still for its TTL: since the first look after it was written.
func (q *queue) seenOver(h holds, w *waiter) time.Duration {
	seen := max(h.until, h.wrote, q.looked(w))
	if h.doubt <= seen+q.tol || q.h.stood(w.client, seen) {
		looked, has := h.looked[w.client]
		if !has && w.from < h.wrote {
			looked = h.wrote + lookAgain
		}
		seen = max(seen, looked)
		return seen + q.h.TTL + q.h.TTL/100 + q.tol
	}
	return h.until + q.tol
}

// clockInDoubt returns from when on no clock may judge the end of a holder that a client wrote: another
// primary's would, a client saw a clock stepped and trusts no date for a while, nor does the writer if its own
// stood still, or the writer, which a fault hindered, or nothing told of it, may not have known the election.
func (h *History) clockInDoubt(client int, written time.Duration) time.Duration {
	if h.Still {
		return 0
	}
	for _, e := range h.Events {
		until := e.Until
		switch {
		case e.Kind != Trouble:
			continue
		case e.Note == Stepped, e.Note == Stopped && e.Client == client && e.At <= written:
			until += stepMinded
		case e.Note == Failover && e.At <= written:
			until += clockAged
		case e.Client == client && e.At <= written:
			until += epochAged
		case e.Note != Failover:
			continue
		}
		if until >= written {
			return e.At
		}
	}
	return never
}

// stood reports whether a client trusts no date then, because its own clock had stood still: to it the
// server's was stepped.
func (h *History) stood(client int, at time.Duration) bool {
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		return e.Kind == Trouble && e.Note == Stopped && e.Client == client && e.At <= at && at <= e.Until+stepMinded
	})
}

// killed returns when each client that was killed was.
func (h *History) killed() map[int]time.Duration {
	all := map[int]time.Duration{}
	for _, e := range h.Events {
		if e.Kind == Trouble && e.Note == Killed {
			all[e.Client] = e.At
		}
	}
	return all
}

// polling returns which clients hear no notices, as their places say.
func (h *History) polling() map[int]bool {
	all := map[int]bool{}
	for _, e := range h.Events {
		if e.Kind == Stood && polled(e.Place) {
			all[e.Owner] = true
		}
	}
	return all
}

// troubled reports whether anything but that clients died went wrong between from and to.
func (h *History) troubled(from, to time.Duration) bool {
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		return e.Kind == Trouble && e.Note != Killed && e.At <= to && e.Until >= from
	})
}

// isDead reports whether a client has been killed by now.
func (q *queue) isDead(client int) bool { return q.deadBy(client, q.now) }

func (q *queue) deadBy(client int, at time.Duration) bool {
	died, was := q.killed[client]
	return was && died <= at
}

// clients names those that stand in line.
func (q *queue) clients() (all []string) {
	for _, p := range q.line {
		name := fmt.Sprint("client ", p.client)
		if q.isDead(p.client) {
			name += ", dead"
		}
		all = append(all, name)
	}
	return all
}
