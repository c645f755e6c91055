// Package line decides when the first waiter of a process asks for a key that other processes
// hold or wait for.
//
// The waiting processes stand in a line, in the record of the key (docs/internals/design.md §4.8). A
// [View] is one process's view of it. It reads no clock, takes no lock and sends nothing: it is told
// what was learned, and says what to do next and when. Its mistakes cost time: only the store grants
// a key.
package line

import (
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/store"
)

// How long things may take.
const (
	Grace       = time.Second             // for the first in line to take a key that it is offered, before the next passes it
	GracePolled = 2500 * time.Millisecond // if its process hears no notices

	refresh          = 25 * time.Second     // between two claims, which also keep the place
	refreshAmong     = 8 * time.Second      // if the place is a writer's that keeps sharers out
	outside          = 3 * time.Second      // if the line is full
	again            = 5 * time.Millisecond // if it was our turn and another was quicker
	early            = 2 * time.Millisecond // if a notice came before the release that it tells of
	earlyMost        = 500 * time.Millisecond
	faultLeast       = 500 * time.Millisecond // between claims that fail
	faultMost        = time.Second
	furthest     int = 3 // places further back wait no longer than this one before they act
)

// A Move is what is to be done next: a claim if Ask, otherwise to take Remove out of the line if
// it is not empty, otherwise to sleep until Until. Offered and Pass belong to the claim.
type Move struct {
	Ask     bool
	Offered bool
	Pass    store.Place
	Remove  store.Place
	Until   monotonic.Moment
}

// A View is what one process knows of a key, on behalf of its first waiter. The zero value has
// no waiter.
type View struct {
	Mode  store.Mode // of the waiter's claim
	Limit int
	Place store.Place // of this process in the line
	In    bool        // the place was seen in the line

	// Joined says that a claim with the place was sent and not granted: it may be in the line.
	Joined bool

	Seen *store.Status // by the last claim or read; nil: none was answered yet

	turn            bool             // it is our turn, as far as is known: ask at once
	look            bool             // something changed: ask at once
	keep, keepAmong monotonic.Moment // then a claim keeps the place, or a writer's among sharers
	tryAt           monotonic.Moment // then one tries to join whose place is not in line
	askAt           monotonic.Moment // otherwise ask then
	least           monotonic.Moment // but not before this: the last claim failed

	told   monotonic.Moment // when a notice offered the key; zero: none did since the last grant or refusal
	tries  int              // claims since then
	lost   int              // refusals in a row although it was our turn
	faults *backoff.Backoff

	index int         // of our place among those that count; -1: it is not in line
	first store.Place // has been offered the key since then, and comes before us; empty: nobody
	since monotonic.Moment
	next  monotonic.Moment // when a notice said that we come next; zero: none did
}

// Refused takes in the refusal of a claim that was sent at sent: the key as it was then.
func (v *View) Refused(s *store.Status, sent, now monotonic.Moment) {
	v.faults, v.least, v.Joined = nil, 0, true
	v.keep, v.keepAmong, v.tryAt = now.Add(backoff.Jitter(refresh)), now.Add(backoff.Jitter(refreshAmong)), now.Add(backoff.Jitter(outside))
	v.see(s, now)
	switch {
	case v.told != 0 && now.Sub(v.told) < earlyMost && heldFor(s) >= sent.Sub(v.told):
		v.askAt, v.turn = now.Add(early<<v.tries), false
		v.tries++
		return
	case v.isTurn(s): // others came or went while the refusal was on its way
		v.askAt = now
		if v.lost++; v.lost > 1 {
			v.askAt = now.Add(backoff.Jitter(again << min(v.lost-2, 7))) // not in a tight loop
		}
		return
	}
	v.told, v.tries, v.lost = 0, 0, 0
	v.plan(s, now)
}

// Read takes in what a read showed.
func (v *View) Read(s *store.Status, now monotonic.Moment) {
	was, soon := v.In, v.askAt
	v.see(s, now)
	v.plan(s, now)
	if v.told != 0 && now.Sub(v.told) < earlyMost {
		v.askAt = min(v.askAt, soon) // the release that it was told of is still to be seen
	}
	v.turn = v.turn || v.isTurn(s)
	v.look = v.look || was && !v.In // it was passed, or lost: it joins again
}

// Failed takes in that a claim failed.
func (v *View) Failed(now monotonic.Moment) {
	if v.faults == nil {
		v.faults = backoff.New(faultLeast, faultMost)
	}
	v.Joined = true
	v.least = now.Add(v.faults.Next())
	v.askAt = v.least
}

// Failing reports whether the last claim failed.
func (v *View) Failing() bool { return v.faults != nil }

// Recovered says that the store answers again: ask at that time.
func (v *View) Recovered(at monotonic.Moment) {
	v.faults, v.least, v.look = nil, at, true
}

// HeardOffer takes in a notice that it is our turn.
func (v *View) HeardOffer(now monotonic.Moment) {
	v.turn, v.told, v.tries = true, now, 0
}

// WasOffered takes in such a notice that came before the waiter did: the release that it tells of
// may be under way.
func (v *View) WasOffered(at monotonic.Moment) { v.told = at }

// HeardNext takes in a notice that the key is offered to those before us: if it was before, somebody
// had it meanwhile.
func (v *View) HeardNext(now monotonic.Moment) {
	if v.next = now; v.first != "" {
		v.since, v.askAt = now, v.keep
	}
	v.askAt = min(v.askAt, now.Add(Grace))
}

// Free says that the key may be free, and Look that something changed: ask at once.
func (v *View) Free() { v.turn = true }

// Look says that something changed: ask at once.
func (v *View) Look() { v.look = true }

// Away says that this process has the key itself, or may have it: to whom the key was offered before
// is not known any more.
func (v *View) Away() { v.first = "" }

// Woken reports whether the next claim does not wait for its time.
func (v *View) Woken() bool { return v.turn || v.look }

// Held reports whether others are known to hold the key, or to come before us.
func (v *View) Held() bool { return v.Seen != nil && !v.turn && !v.isTurn(v.Seen) }

// Next returns what to do now, and takes it for done.
func (v *View) Next(now monotonic.Moment) Move {
	due := max(v.askAt, v.least)
	if v.Woken() {
		due = v.least
	}
	if now < due {
		return Move{Until: due}
	}
	m := Move{Ask: true, Offered: v.In && (v.turn || v.tries > 0)}
	if v.first != "" && !v.turn && now >= v.since.Add(v.delay(v.first)) {
		if v.index == 1 {
			m.Pass = v.first
		} else {
			m = Move{Remove: v.first}
		}
		v.first, v.askAt = "", now.Add(Grace) // until the answer is known
	}
	v.turn, v.look = false, false
	return m
}

// see remembers a status.
func (v *View) see(s *store.Status, now monotonic.Moment) {
	stayed := v.Seen != nil && v.joined(v.Seen).Equal(v.joined(s))
	written := v.Seen != nil && !slices.EqualFunc(v.Seen.Holders, s.Holders, func(a, b store.Holder) bool { return a.ID == b.ID })
	v.Seen = s
	line := s.Waiting(v.Place, "")
	v.index = slices.Index(line, v.Place)
	v.In = v.index >= 0 && v.Place != ""
	n := s.Offered(line)
	switch {
	case n == 0 || v.index < n:
		v.first = ""
	case line[0] != v.first, written, v.next > v.since: // somebody had the key meanwhile
		v.first, v.since = line[0], now
		over := func(h store.Holder) bool { return !s.Live(h) }
		// Nobody else had the key since the notice: we would have come closer. A holder that ran
		// out shows that the release which it tells of was lost.
		if v.next != 0 && v.index == n && stayed && !slices.ContainsFunc(s.Holders, over) {
			v.since = v.next
		}
	}
	v.next = 0
}

// joined is when our place joined the line. If it was taken out meanwhile, by a grant that we do not
// know of for one, it stands at the end again.
func (v *View) joined(s *store.Status) (since time.Time) {
	for _, w := range s.Line {
		if w.Place == v.Place {
			since = w.Since
		}
	}
	return since
}

// plan says when to ask, given what is seen.
func (v *View) plan(s *store.Status, now monotonic.Moment) {
	at, among := v.keep, s.Mode != store.Exclusive && !s.Free()
	switch {
	case !v.In:
		at = v.tryAt
	case among && v.Mode == store.Exclusive:
		at = v.keepAmong
	case among && v.index > 0: // if the writer before us died, it does not keep us out for long
		first := s.Line[slices.IndexFunc(s.Line, func(w store.Waiter) bool { return w.Place == v.Place || writes(w.Place) && !s.Stale(w) })]
		if first.Place != v.Place {
			at = min(at, now.Add(first.Seen.Add(store.ReserveFor).Sub(s.Now)+again))
		}
	}
	switch left := v.opens(s); {
	case v.first != "":
		at = min(at, v.since.Add(v.delay(v.first)))
	case left > 0 && v.index > 0:
		at = min(at, now.Add(term.Drifted(left)+v.delay(s.Waiting(v.Place, "")[0])))
	case left > 0:
		at = min(at, now.Add(term.Drifted(left)))
	}
	v.askAt = at
}

func writes(p store.Place) bool {
	mode, _ := p.Mode()
	return mode == store.Exclusive
}

// delay returns for how long the first in line must have been offered the key before we act.
func (v *View) delay(first store.Place) time.Duration {
	grace := Grace
	if first.Address() == "" {
		grace = GracePolled
	}
	return grace * time.Duration(min(v.index, furthest))
}

// isTurn reports whether a claim makes sense by what is seen.
func (v *View) isTurn(s *store.Status) bool {
	return Open(s, &store.Claim{Ref: store.Ref{Mode: v.Mode}, Limit: v.Limit, Place: v.Place})
}

// heldFor returns for how long the oldest live holder has the key. If it may have had it when a
// notice came, it is about to leave: the notice came before the release.
func heldFor(s *store.Status) (d time.Duration) {
	for _, h := range s.Holders {
		if s.Live(h) {
			d = max(d, s.Now.Sub(h.Since))
		}
	}
	return d
}

// opens returns how long it takes until holders leave if none renews or leaves before.
func (v *View) opens(s *store.Status) time.Duration {
	first := s.Left()
	if v.Mode == store.Permits && s.Mode == store.Permits {
		for _, h := range s.Holders {
			if s.Live(h) {
				first = min(first, s.LeftOf(h))
			}
		}
	}
	return first
}

// Open reports whether a claim makes sense, given a status: the key's holders admit it, and it is
// its turn.
func Open(s *store.Status, c *store.Claim) bool {
	if !s.Turn(c) {
		return false
	}
	live := 0
	for _, h := range s.Holders {
		if s.Live(h) {
			live++
		}
	}
	switch {
	case live == 0:
		return true
	case c.Mode == store.Exclusive || s.Mode == store.Exclusive:
		return false
	case s.Mode != c.Mode || s.Limit != c.Limit:
		return true // the claim's refusal then says what does not match
	}
	return s.Mode == store.Shared || live < s.Limit
}
