// Package line decides when the first waiter of a process asks for a key that other processes
// hold or wait for.
//
// The waiting processes stand in a line, in the record of the key (docs/internals/design.md §4.8). A
// [View] is one process's view of it. It reads no clock, takes no lock and sends nothing: it is told
// what was learned, and says what to do next and when. Its mistakes cost time: only the store grants
// a key.
package line

import (
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// How long things may take.
const (
	Grace       = time.Second             // for those before us to take a key that they are offered, before we pass them
	GracePolled = 2500 * time.Millisecond // if the first of them hears no notices

	// Where leases are short, so are graces: a handoff takes no longer than a lease, which has its trips in it.
	graceOfUses      = 4
	graceLeast       = 150 * time.Millisecond
	gracePolledLeast = 300 * time.Millisecond

	slot      = 10 * time.Millisecond // between the second in line and the third, and so on: the first that lives passes the others
	slotsMost = 400 * time.Millisecond

	refresh      = 25 * time.Second     // between two claims, which also keep the place
	refreshMost  = 30 * time.Second     // a fifth more
	refreshAmong = 8 * time.Second      // if the place keeps sharers out: a writer's, or one of several permits
	outside      = 3 * time.Second      // if the line is full
	again        = 5 * time.Millisecond // if it was our turn and another was quicker
	early        = 2 * time.Millisecond // if a notice came before the release that it tells of
	earlyMost    = 500 * time.Millisecond
	faultLeast   = 500 * time.Millisecond // between claims that fail
	faultMost    = time.Second
)

// A Move is what is to be done next: a claim if Ask, otherwise to sleep until Until. Offered, Unseen and
// Since belong to the claim. Told says that a notice offered the key.
type Move struct {
	Ask     bool
	Offered bool
	Told    bool
	Unseen  time.Time
	Since   time.Time
	Until   monotonic.Moment
}

// A View is what one process knows of a key, on behalf of its first waiter. The zero value has
// no waiter.
type View struct {
	Mode  store.Mode // of the waiter's claim
	Limit int
	Place store.Place // of this process in the line
	In    bool        // the place was seen in the line
	Slow  bool        // and is shown as slow: it was passed, and stands there again
	Full  bool        // the line has no room for the place

	// Joined says that a claim with the place was sent and not granted: it may be in the line.
	Joined bool

	Seen *store.Status // by the last claim or read; nil: none was answered yet

	turn            bool             // it is our turn, as far as is known: ask at once
	look            bool             // something changed: ask at once
	keep, keepAmong monotonic.Moment // then a claim keeps the place, or one that keeps sharers out
	tryAt           monotonic.Moment // then one tries to join whose place is not in line
	askAt           monotonic.Moment // otherwise ask then
	least           monotonic.Moment // but not before this: the last claim failed

	told   monotonic.Moment // when a notice offered the key; zero: none did since the last grant or refusal
	tries  int              // claims since then
	lost   int              // refusals in a row although it was our turn
	faults *backoff.Backoff

	seenAt monotonic.Moment // when Seen came

	index int       // of our place among those that count; -1: it is not in line
	stood time.Time // since when our place stands in line, or stood there before it was passed; zero: it never did

	first   store.Place      // comes before us, and has been offered the key since freed; empty: none does
	freed   time.Time        // by the store's clock
	learnt  monotonic.Moment // when we saw it
	unseen  time.Time        // nobody before us was seen since then, and the key is free since
	since   monotonic.Moment // the same by this process's clock
	blocked bool             // one before us could not have the key that is offered, and we can only after it
	passed  monotonic.Moment // when a claim that passes those before us was sent; zero: none was since freed

	change monotonic.Moment // when the key was last seen to have changed; zero: never
	steady time.Duration    // for how long it had not, then
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
	case v.isTurn(s, time.Time{}): // others came or went while the refusal was on its way
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
	v.turn = v.turn || v.isTurn(s, time.Time{})
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

// HeardNext takes in a notice that the key is offered to those before us. If it was before, somebody
// had it meanwhile.
func (v *View) HeardNext(now monotonic.Moment) {
	if v.first != "" {
		v.Away()
		v.askAt = v.keep
	}
	v.askAt = min(v.askAt, now.Add(v.grace(v.Place)))
}

// Look says that something changed: ask at once.
func (v *View) Look() { v.look = true }

// Outside says that the line was full lately, when this process had its turn: the next is for those outside.
func (v *View) Outside(now monotonic.Moment) {
	v.look, v.askAt = false, now.Add(backoff.Jitter(outside))
}

// Away says that this process has the key itself, or may have it: to whom the key was offered before
// is not known any more.
func (v *View) Away() { v.first, v.freed, v.passed = "", time.Time{}, 0 }

// Serves reports whether another waiter can take over the place.
func (v *View) Serves(m store.Mode, limit, weight int) bool {
	return v.Mode == m && v.Limit == limit && v.Place.Weight() == max(1, weight)
}

// Woken reports whether the next claim does not wait for its time.
func (v *View) Woken() bool { return v.turn || v.look }

// Held reports whether others are known to hold the key, or to come before us.
func (v *View) Held() bool { return v.Seen != nil && !v.turn && !v.isTurn(v.Seen, time.Time{}) }

// Next returns what to do now, and takes it for done.
func (v *View) Next(now monotonic.Moment) Move {
	due := max(v.askAt, v.least)
	if v.Woken() {
		due = v.least
	}
	if now < due {
		return Move{Until: due}
	}
	m := Move{Ask: true, Offered: v.In && (v.turn || v.tries > 0), Told: v.In && v.told != 0}
	if !v.Slow { // a place that is passed once more joins at the end: it would cost those behind it a grace each time
		m.Since = v.stood
	}
	if v.first != "" && !v.turn && now >= v.passAt() {
		m.Unseen, m.Offered = v.unseen, false
		v.first, v.passed, v.askAt = "", now, now.Add(Grace) // until the answer is known
	}
	v.turn, v.look = false, false
	return m
}
