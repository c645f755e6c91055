package history

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The rules of a line, docs/internals/design.md §4.8, said again.
const (
	grace            = time.Second             // for those that are offered a key to take it, before one behind them passes them
	gracePolled      = 2500 * time.Millisecond // if the first of them hears no notices
	graceLeast       = 150 * time.Millisecond  // where leases are short
	gracePolledLeast = 300 * time.Millisecond
	reserveLess      = time.Minute // so much sooner a place is stale that keeps others from sharing a key
)

// A standing is a place in line.
type standing struct {
	place   string
	mode    Mode
	client  int
	op      int           // the call that used it last
	joined  time.Duration // the line, for the first time
	stood   time.Duration // there, since it was passed
	late    bool          // the call that it was for was over then, and no other call has used it since
	unknown bool          // kept up by a fault: its command may have been cut off
	until   time.Duration // when it is stale; 0: nobody can tell
	seen    time.Duration // when its waiter joined the line, or last said that it waits
	silent  time.Duration // when one before it was last seen that had died when its place was taken out
}

// graced is how long it is waited for, once it is offered the key.
func (p *standing) graced() time.Duration {
	if polled(p.place) {
		return gracePolled
	}
	return grace
}

// polled reports whether a place has no address, so that nobody can tell its waiter anything.
func polled(place string) bool {
	_, rest, _ := strings.Cut(place, ":")
	return strings.HasPrefix(rest, ":")
}

// reserves reports whether the place keeps sharers out that would not have to wait.
func (p *standing) reserves() bool { return !p.mode.Shared || p.mode.Weight > 1 }

func modeOfPlace(place string) (m Mode) {
	mark, _, _ := strings.Cut(place, ":")
	switch {
	case mark == "s":
		m.Shared = true
	case strings.HasPrefix(mark, "p"):
		m.Shared = true
		permits, weight, _ := strings.Cut(mark[1:], "w")
		m.Limit, _ = strconv.Atoi(permits)
		m.Weight, _ = strconv.Atoi(weight)
	}
	return m
}

// A holds is a holder of the key, as the database has it.
type holds struct {
	client int
	op     int // the call that was granted it
	mode   Mode
	until  time.Duration
	over   time.Duration // when others may know that it is over, at the earliest
	since  time.Duration
	wrote  time.Duration         // when its client wrote it last
	doubt  time.Duration         // from when on no clock can tell that it is over
	looked map[int]time.Duration // by client: when one that waits looked first since it was written
}

// held returns what an event says of a holder.
func (q *queue) held(e Event, client int, mode Mode) holds {
	h := holds{client: client, op: e.Op, mode: mode, until: max(e.Until, e.Written), since: e.At, wrote: e.At, looked: map[int]time.Duration{}}
	h.doubt = q.h.clockInDoubt(client, e.At)
	h.over = h.until
	if e.Over != 0 {
		h.over = min(h.over, e.Over)
	}
	return h
}

// A queue is a key and its line as the database has them, at one moment after another.
type queue struct {
	h       *History
	key     string
	tol     time.Duration // how far the times of a place, and of a holder, may be off
	now     time.Duration // when it was so first
	freed   time.Duration // when a holder last left
	freer   int           // the client that removed it
	holders map[string]holds
	line    []*standing
	came    map[string]time.Duration // by place: when it joined the line first
	resumes map[int]bool             // by Op: calls that resume a ticket
	calls   map[int]time.Duration    // by Op: when they began
	answers map[int]time.Duration    // by Op
	letGo   map[string]time.Duration // by ID
	failed  map[int]time.Duration    // by Op
	gaveUp  map[int]time.Duration    // by Op: when its place left the line
	waits   map[int][]*wait          // by client
	waiters []*waiter                // those that wait still, or will
	idled   time.Duration            // until when it did, as was reported last
	killed  map[int]time.Duration    // by client
	lefts   map[bool]time.Duration   // when one last left that shared the key: permits, or not
	streak  streak
	found   []Violation
}

// A write is what one write of the database did to a key.
type write struct {
	at, began              time.Duration
	client                 int
	swept                  bool
	applied, dropped, left []Event
	rest                   []Event
}

// writesOf returns the writes of each key, in order.
func (h *History) writesOf() map[string][]*write {
	all := map[string][]*write{}
	for _, e := range h.Events {
		if !slices.Contains([]Kind{Applied, Dropped, Shortened, Extended, Stood, Waits, Left}, e.Kind) {
			continue
		}
		list := all[e.Key]
		if len(list) == 0 || list[len(list)-1].at != e.At { // no two writes share an instant
			list = append(list, &write{at: e.At, client: e.Client})
			all[e.Key] = list
		}
		w := list[len(list)-1]
		w.began, w.swept = max(w.began, e.Began), w.swept || e.Note == Swept
		switch e.Kind {
		case Applied:
			w.applied = append(w.applied, e)
		case Dropped:
			w.dropped = append(w.dropped, e)
		case Left:
			w.left = append(w.left, e)
		default:
			w.rest = append(w.rest, e)
		}
	}
	return all
}

// inLine checks that keys are granted in the order of their lines, and that nobody loses a place
// to others but as the rules say.
func inLine(h *History) (found []Violation) {
	writes, waits, answers, resumes := h.writesOf(), h.waits(), h.answers(), map[int]bool{}
	killed, polling := h.killed(), h.polling()
	calls, failed, letGo := map[int]time.Duration{}, map[int]time.Duration{}, map[string]time.Duration{}
	for _, e := range h.Events {
		switch e.Kind {
		case Called:
			calls[e.Op] = e.At
		case Failed:
			failed[e.Op] = e.At
		case LetGo:
			letGo[e.ID] = e.At
		}
		resumes[e.Op] = resumes[e.Op] || e.Kind == Called && e.Note == Resumes
	}
	for _, key := range slices.Sorted(maps.Keys(writes)) {
		q := &queue{h: h, key: key, tol: h.Tolerance + 100*time.Millisecond, holders: map[string]holds{}, came: map[string]time.Duration{}, resumes: resumes, calls: calls, answers: answers, letGo: letGo, failed: failed, gaveUp: map[int]time.Duration{}, waits: waits[key], killed: killed, lefts: map[bool]time.Duration{}, waiters: waiting(waits[key], polling)}
		for _, w := range writes[key] {
			q.idles(w.at)
			q.judge(w)
			q.apply(w)
			q.now = w.at
		}
		q.idles(h.End)
		for _, p := range q.line {
			q.forgotten(p, h.End)
		}
		found = append(found, q.found...)
	}
	return found
}

// counts reports whether a place surely counts at a time.
func (q *queue) counts(p *standing, at time.Duration) bool {
	until := p.until
	if p.reserves() && q.shared() {
		until -= reserveLess
	}
	return p.until != 0 && until > at+q.tol
}

// shared reports whether others may share the key. A holder that has run out does until that is known.
func (q *queue) shared() bool {
	for _, h := range q.holders {
		if h.mode.Shared {
			return true
		}
	}
	return false
}

// mayBe reports whether a claim may have the key beside those before it: before is who surely counts
// there. With it and them no more permits may be taken than any of their claims allows.
func (q *queue) mayBe(mode Mode, before []*standing, at time.Duration) bool {
	taken, most := mode.takes(), mode.Limit
	for _, h := range q.holders {
		switch {
		case h.over <= at+q.tol:
		case !compatible(h.mode, mode):
			return false
		default:
			taken += h.mode.takes()
		}
	}
	for _, p := range before {
		if !compatible(p.mode, mode) {
			return false
		}
		taken, most = taken+p.mode.takes(), min(most, p.mode.Limit)
	}
	return !mode.permits() || taken <= most
}

// before returns which places surely count before the nth one.
func (q *queue) before(n int, at time.Duration) (all []*standing) {
	for _, p := range q.line[:n] {
		if q.counts(p, at) {
			all = append(all, p)
		}
	}
	return all
}

func (q *queue) violation(check string, at time.Duration, format string, args ...any) {
	q.found = append(q.found, Violation{check, at, fmt.Sprintf("%q: ", q.key) + fmt.Sprintf(format, args...)})
}

// judge checks a write.
func (q *queue) judge(w *write) {
	for _, e := range w.rest {
		if e.Kind == Stood && q.index(e.Place) >= 0 && !slices.ContainsFunc(w.left, func(l Event) bool { return l.Place == e.Place }) {
			q.violation("stands twice", w.at, "client %d has one place in line twice", e.Owner)
		}
	}
	least, freed := q.leastGrace(w.at), q.freed
	if slices.ContainsFunc(w.applied, func(e Event) bool { return e.Shared }) { // it compares no more than its own place: others may have left since its look
		freed = 0
	}
	for _, e := range w.left {
		i := q.index(e.Place)
		if i < 0 {
			continue
		}
		p := q.line[i]
		if q.forgotten(p, w.at); p.client == w.client && !w.swept {
			q.givenUp(p, w)
			continue
		}
		if !q.counts(p, w.at) {
			continue
		}
		switch {
		case w.swept, len(w.applied) == 0 && len(w.dropped) > 0:
			q.violation("place lost", w.at, "client %d waits, and its place goes with a holder", p.client)
		case q.h.primaryChanged(w.began, w.at) && !slices.ContainsFunc(w.applied, func(e Event) bool { return !e.Shared }):
			// It was the first in the line of a deposed primary. A claim alone compares who is.
		case !q.passes(w, i):
			q.violation("place lost", w.at, "client %d waits, and client %d, which is not granted the key behind it, takes it out of the line", p.client, w.client)
		case w.began-max(freed, p.seen) < least-q.tol:
			q.violation("passed early", w.at, "client %d waits, and client %d passes it, which began at %v; a holder left last at %v, and it was seen at %v", p.client, w.client, w.began, freed, p.seen)
		}
	}
	if handed := q.handed(w); len(w.applied) > 0 && !handed {
		for _, e := range w.applied {
			q.inTurn(w, e)
		}
	}
}

// leastGrace returns for how long the first in line is waited for at least.
func (q *queue) leastGrace(at time.Duration) time.Duration {
	if i := slices.IndexFunc(q.line, func(p *standing) bool { return q.counts(p, at) }); i >= 0 && q.line[i].graced() == gracePolled {
		return gracePolledLeast
	}
	return graceLeast
}

// passes reports whether a write grants the key to one who stands behind a place, and passes that.
func (q *queue) passes(w *write, place int) bool {
	return slices.ContainsFunc(w.applied, func(e Event) bool {
		if gaveUp := q.gaveUp[e.Op]; gaveUp != 0 && w.began-gaveUp < time.Second {
			return true // behind it, when it looked
		}
		at := q.index(e.Place)
		if at < 0 {
			at = slices.IndexFunc(q.line, func(p *standing) bool { return p.client == e.Client })
		}
		return at > place
	})
}

// inTurn checks that a claim which is granted overtakes nobody. A claim without a place counts as at that of its
// client, if that has one: which of its own waiters is next a client decides itself.
func (q *queue) inTurn(w *write, e Event) {
	at := q.index(e.Place)
	switch {
	case at < 0:
		if at = slices.IndexFunc(q.line, func(p *standing) bool { return p.client == e.Client }); at < 0 {
			at = len(q.line)
		}
	case q.line[at].stood > w.began:
		return // a late command: its place was passed, and stands in line once more
	case e.Shared && q.h.primaryChanged(w.began, w.at):
		return // what came before it was gone, which compares no more than its own place, and came back
	}
	before := slices.DeleteFunc(q.before(at, w.at), func(p *standing) bool {
		// A sharer compares no more than its own place: it does not see one that stands again since its look.
		return e.Shared && p.stood > p.joined && (p.stood > w.began-time.Second || !q.h.quiet()) ||
			slices.ContainsFunc(w.left, func(l Event) bool { return l.Place == p.place })
	})
	if len(before) == 0 || e.Place != "" && e.Shared && q.mayBe(e.Mode, before, w.at) {
		return
	}
	q.violation("out of turn", w.at, "client %d is granted the key before client %d, which stands in line since %v", e.Client, before[0].client, before[0].joined)
}

func (q *queue) index(place string) int {
	return slices.IndexFunc(q.line, func(p *standing) bool { return p.place == place })
}

// stand puts a new place in line. It may say that it came earlier only if it did, and was passed; then it comes
// before others, but not before those that came earlier.
func (q *queue) stand(w *write, e Event, p *standing) {
	if q.came[p.place] == 0 {
		q.came[p.place] = w.at
	}
	if e.Since != 0 && e.Since < w.at-q.tol {
		p.joined = e.Since
		if p.joined < q.came[p.place]-q.tol && !q.h.primaryChanged(p.joined, w.at) { // otherwise its place was rolled back
			q.violation("jumps the line", w.at, "client %d, which came at %v, says that it came at %v", p.client, q.came[p.place], p.joined)
		}
	}
	at := len(q.line)
	if n := q.index(e.Behind); n >= 0 {
		at = n
		if other := q.line[at]; e.Since != 0 && other.joined < p.joined-q.tol {
			q.violation("jumps the line", w.at, "client %d, which came at %v, stands before client %d, which came at %v", p.client, p.joined, other.client, other.joined)
		}
	}
	q.line = slices.Insert(q.line, at, p)
}

// apply takes in what a write did.
func (q *queue) apply(w *write) {
	for _, e := range w.dropped {
		q.freed, q.freer = w.at, w.client
		if h := q.holders[e.ID]; h.mode.Shared {
			q.lefts[h.mode.permits()] = w.at
		}
		delete(q.holders, e.ID)
	}
	for _, e := range w.left {
		if i := q.index(e.Place); i >= 0 {
			if len(w.applied) == 0 && q.line[i].client == w.client {
				q.gaveUp[q.line[i].op] = w.at
			}
			if p := q.line[i]; q.deadBy(p.client, w.at) {
				for _, behind := range q.line[i+1:] {
					behind.silent = max(behind.silent, p.seen)
				}
			}
			q.line = slices.Delete(q.line, i, i+1)
		}
	}
	for _, e := range w.applied {
		q.holders[e.ID] = q.held(e, e.Client, e.Mode)
	}
	for _, e := range w.rest {
		switch h, known := q.holders[e.ID]; {
		case e.Kind == Stood:
			answered, over := q.answers[e.Op]
			late := over && answered < w.at
			unknown := late && q.h.hindered(e.Owner, q.calls[e.Op], q.calls[e.Op], w.at) || q.h.hindered(e.Owner, w.at, w.at-1, w.at)
			q.stand(w, e, &standing{place: e.Place, mode: modeOfPlace(e.Place), client: e.Owner, op: e.Op, joined: w.at, stood: w.at, seen: w.at, late: late, unknown: unknown, until: e.Until})
		case e.Kind == Waits:
			if i := q.index(e.Place); i >= 0 {
				q.line[i].seen, q.line[i].op, q.line[i].until, q.line[i].late = w.at, e.Op, e.Until, false
			}
		case known:
			later := q.held(e, h.client, h.mode)
			later.op, later.since = h.op, h.since
			q.holders[e.ID] = later
		}
		if e.Kind == Stood || e.Kind == Waits {
			for _, h := range q.holders {
				if _, has := h.looked[e.Owner]; !has {
					h.looked[e.Owner] = w.at
				}
			}
		}
	}
	if len(w.applied) > 0 {
		q.streak.known = slices.ContainsFunc(q.line, func(p *standing) bool { return p.client != w.client })
	}
}
