package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
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

	refresh      = 25 * time.Second // between two claims, which also keep the place
	refreshMost  = 30 * time.Second // a fifth more
	refreshAmong = 8 * time.Second  // if the place keeps sharers out: a writer's, or one of several permits
	outsideMost  = 3 * time.Second  // between two tries of one that has no place in line: see pause
	outsideLeast = 20 * time.Millisecond
	again        = 5 * time.Millisecond // if it was our turn and another was quicker
	early        = 2 * time.Millisecond // if a notice came before the release that it tells of
	earlyMost    = 500 * time.Millisecond
	faultPause   = 750 * time.Millisecond // between claims that fail
)

// A Move is what is to be done next: a claim if Ask, otherwise to sleep until Until. Offered, Unseen and
// Since belong to the claim. Told says that a notice offered the key.
type Move struct {
	Ask     bool
	Offered bool
	Told    bool
	Unseen  time.Time
	Since   time.Time
	Until   moment
}

// A View is what one process knows of a key, on behalf of its first waiter: it decides when that one asks for a
// key that other processes hold or wait for. They stand in a line, in the record of the key
// (docs/internals/design.md §4.8). Its mistakes cost time: only the store grants a key. The zero value has no
// waiter.
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

	turn            bool   // it is our turn, as far as is known: ask at once
	look            bool   // something changed: ask at once
	keep, keepAmong moment // then a claim keeps the place, or one that keeps sharers out
	tryAt           moment // then one tries to join whose place is not in line
	outside         int    // pauses of one for which the line has no room
	askAt           moment // otherwise ask then
	least           moment // but not before this: the last claim failed

	told    moment // when a notice offered the key; zero: none did since the last grant or refusal
	tries   int    // claims since then
	lost    int    // refusals in a row although it was our turn
	failing bool   // the last claim failed

	seenAt moment // when Seen came

	index int       // of our place among those that count; -1: it is not in line
	inAt  moment    // when we first saw our place in line; zero: never
	stood time.Time // since when our place stands in line, or stood there before it was passed; zero: it never did

	first   store.Place // comes before us, and has been offered the key since freed; empty: none does
	freed   time.Time   // by the store's clock
	learnt  moment      // when we saw it
	unseen  time.Time   // nobody before us was seen since then, and the key is free since
	since   moment      // the same by this process's clock
	blocked bool        // one before us could not have the key that is offered, and we can only after it
	passed  moment      // when a claim that passes those before us was sent; zero: none was since freed

	change moment        // when the key was last seen to have changed; zero: never
	steady time.Duration // for how long it had not, then
}

// Refused takes in the refusal of a claim that was sent at sent: the key as it was then.
func (v *View) Refused(s *store.Status, sent, now moment) {
	v.failing, v.least, v.Joined = false, 0, true
	v.keep, v.keepAmong = now.Add(backoff.Jitter(refresh)), now.Add(backoff.Jitter(refreshAmong))
	v.see(s, now)
	v.tryAt = now.Add(backoff.Jitter(outsideMost))
	if v.Full {
		v.tryAt = now.Add(v.pause(s.Now.Sub(waiter(s, s.Waiting(v.Place)[0]).Since)))
	}
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
func (v *View) Read(s *store.Status, now moment) {
	was, soon := v.In, v.askAt
	v.see(s, now)
	v.plan(s, now)
	if v.told != 0 && now.Sub(v.told) < earlyMost {
		v.askAt = min(v.askAt, soon) // the release that it was told of is still to be seen
	}
	v.turn = v.turn || v.isTurn(s, time.Time{})
	v.look = v.look || was && !v.In // it was passed, or lost: it joins again
}

// Failed takes in that a claim failed. It may have joined the line.
func (v *View) Failed(now moment, joined bool) {
	v.failing, v.Joined = true, v.Joined || joined
	v.least = now.Add(backoff.Jitter(faultPause))
	v.askAt = v.least
}

// Recovered says that the store answers again: ask at that time.
func (v *View) Recovered(at moment) {
	v.failing, v.least, v.look = false, at, true
}

// HeardOffer takes in a notice that it is our turn.
func (v *View) HeardOffer(now moment) {
	v.turn, v.told, v.tries = true, now, 0
}

// HeardNext takes in a notice that the key is offered to those before us. If we knew, it is no news: a process that goes
// may tell it once more. If somebody had the key meanwhile, the store passes nobody for us yet.
func (v *View) HeardNext(now moment) {
	if v.first == "" {
		v.askAt = min(v.askAt, now.Add(v.grace(v.Place)))
	}
}

// Outside says that so many others stood in line when this process had its turn, for which its place stood there for
// a round: the next turns are for those outside. Where there is room for some, few are. A caller that leaves before has
// asked once, as it has to know whether the key is held; zero: it does not.
func (v *View) Outside(others int, round time.Duration, since, leaves, now moment) {
	if others < store.LineMost-1 {
		v.outside = 2
	}
	v.look, v.askAt = false, since.Add(v.pause(round))
	if leaves != 0 {
		v.askAt = min(v.askAt, now.Add(leaves.Sub(now)/2))
	}
}

// pause returns for how long one stays outside of a full line before it tries again, given for how long the first
// stands in it: for four rounds, two, one, and then half a round each time. So those that came earlier ask more often.
func (v *View) pause(round time.Duration) time.Duration {
	if round < 0 { // unknown, or by two clocks
		round = outsideMost
	}
	d := 4 * min(round, time.Hour) >> min(v.outside, 3)
	v.outside++
	return backoff.Jitter(min(max(outsideLeast, d), outsideMost))
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
func (v *View) Next(now moment) Move {
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

// see remembers a status.
func (v *View) see(s *store.Status, now moment) {
	if v.Seen == nil || changedHands(v.Seen, s) {
		v.steady = 0
		if v.change != 0 {
			v.steady = now.Sub(v.change)
		}
		v.change = now
	}
	v.Seen, v.seenAt, v.blocked = s, now, false
	line := s.Waiting(v.Place)
	v.index = slices.Index(line, v.Place)
	v.In = v.index >= 0 && v.Place != ""
	v.Full = !v.In && len(line) >= store.LineMost
	if v.In {
		if v.inAt == 0 {
			v.inAt = now
		}
		w := waiter(v.Seen, v.Place)
		v.stood, v.Slow = w.Since, w.Slow
	}
	if n := s.Offered(line); n == 0 || v.index < n {
		v.Away()
		return
	}
	freed := v.offeredSince(line[0])
	if v.first != line[0] || !same(freed, v.freed) {
		if !same(freed, v.freed) {
			v.passed = 0
		}
		v.first, v.freed, v.learnt, v.unseen = line[0], freed, now, freed
		if freed.IsZero() {
			v.unseen = s.Now
		}
	}
	if !freed.IsZero() { // one that was seen since may have left
		v.unseen = freed
	}
	if !v.isTurn(s, v.unseen) { // otherwise those that were seen since leave room for us: we need not pass them
		for _, p := range line[:v.index] {
			if seen := waiter(v.Seen, p).Seen; seen.After(v.unseen) {
				v.unseen = seen
			}
		}
	}
	switch v.since = now.Add(v.unseen.Sub(s.Now)); {
	case v.since > now.Add(Grace): // a date of another clock, from before an election
		v.since = v.learnt
	case v.since > now: // what time it is there is an estimate
		v.since = now
	}
	if !v.isTurn(s, v.unseen) { // one between could not have had the key, and waits itself; or we could not
		v.first, v.blocked = "", true
	}
}

// same reports whether two looks show the same release. When a holder ran out may be calculated each time.
func same(a, b time.Time) bool { return a.Sub(b).Abs() < slot }

// offeredSince returns since when a place has been offered the key: since that is free, or since the place
// came. One that was passed came before that.
func (v *View) offeredSince(p store.Place) time.Time {
	freed := v.Seen.OfferedSince()
	if w := waiter(v.Seen, p); !freed.IsZero() && w.Since.After(freed) {
		return w.Since
	}
	return freed
}

// waiter returns what is told of a place in line.
func waiter(s *store.Status, p store.Place) (w store.Waiter) {
	if i := slices.IndexFunc(s.Line, func(w store.Waiter) bool { return w.Place == p }); i >= 0 {
		return s.Line[i]
	}
	return w
}

// passAt is when we pass those before us, should they not take the key. Who learns late that it is free has
// its slot all the same.
func (v *View) passAt() moment {
	at := v.since.Add(v.grace(v.first))
	if v.passed != 0 { // and was refused
		at = max(at, v.passed.Add(graceLeast))
	}
	return max(at, v.learnt).Add(v.behind())
}

// behind returns how much later than the second in line we act, if all before us have died.
func (v *View) behind() time.Duration {
	return min(slot*time.Duration(max(0, v.index-1)), slotsMost)
}

// grace returns for how long a place must have been offered the key before it is passed. All who wait
// must come to the same: so it depends on what the record says.
func (v *View) grace(p store.Place) time.Duration {
	if v.Seen == nil || waiter(v.Seen, p).Slow {
		return patienceWith(p, 0)
	}
	d := patienceWith(p, v.Seen.Used)
	if p.Address() == "" { // it polls as we do: the less often, the longer nothing has changed
		d = max(d, min(3*v.steady, GracePolled))
	}
	return d
}

// patienceWith returns how long a place is waited for that is offered the key, after a lease that was used for
// so long; 0: nobody knows for how long.
func patienceWith(p store.Place, used time.Duration) time.Duration {
	least, most := graceLeast, Grace
	if p.Address() == "" {
		least, most = gracePolledLeast, GracePolled
	}
	if used == 0 {
		return most
	}
	return min(max(least, graceOfUses*used), most)
}

// Passed returns those that a granted claim passed, by the last look.
func (v *View) Passed(unseen time.Time) (all []store.Place) {
	for _, w := range v.Seen.Line {
		if w.Place == v.Place {
			break
		}
		if !w.Seen.After(unseen) {
			all = append(all, w.Place)
		}
	}
	return all
}

// Comes reports whether the key was seen since it was freed, and is not offered any more, or will be ours: now, or
// as soon as those may be passed to whom it is offered. One before us that could not have it keeps us from that,
// and one that was seen since puts it off. Under MinHold it is free only later: if it was not seen since then, it
// will be, by the time when those before us may be passed.
func (v *View) Comes(freed, free moment) bool {
	return v.In && v.seenAt > freed && !v.blocked && (v.first == "" || !v.unseen.After(v.freed)) &&
		(v.seenAt > free || v.askAt <= free.Add(Grace+slotsMost))
}

// ranOut reports whether a holder of that look has run out since.
func ranOut(s *store.Status, now time.Time) bool {
	return s != nil && slices.ContainsFunc(s.Holders, func(h store.Holder) bool { return !h.ExpireAt.After(now) })
}

// behind returns the first place of a line that is not known, by an earlier look, to be stale by now. It is
// empty if there is none.
func behind(s *store.Status, line []store.Place, now time.Time) store.Place {
	var then store.Status
	if s != nil {
		then = *s
	}
	then.Now = now
	for _, p := range line {
		if !slices.ContainsFunc(then.Line, func(w store.Waiter) bool { return w.Place == p && then.Stale(w) }) {
			return p
		}
	}
	return ""
}

// untold is how soon a holder that was not renewed lately may run out.
const untold = 15 * time.Second

// endsUntold reports whether a holder may be over, and nobody tells a waiter, before that looks by itself: it
// was released under MinHold, is not renewed, or was granted the key since the waiter looked.
func endsUntold(s *store.Status, p store.Place) bool {
	seen := waiter(s, p).Seen
	return slices.ContainsFunc(s.Holders, func(h store.Holder) bool {
		missed := h.Since.After(seen) && s.Now.Add(s.LeftOf(h)).Before(seen.Add(refreshMost))
		return s.Live(h) && (h.Released || s.LeftOf(h) < untold || missed)
	})
}

// changedHands reports whether somebody came to hold the key, or left it, between two looks.
func changedHands(a, b *store.Status) bool {
	return !a.Freed.Equal(b.Freed) || !slices.EqualFunc(a.Holders, b.Holders, func(a, b store.Holder) bool { return a.ID == b.ID })
}

// plan says when to ask, given what is seen.
func (v *View) plan(s *store.Status, now moment) {
	at, among := v.keep, s.Mode != store.Exclusive && !s.Free()
	line := s.Waiting(v.Place)
	switch {
	case !v.In:
		at = v.tryAt
	case among && reserves(v.Place):
		at = v.keepAmong
	case among: // if one before us that keeps sharers out died, it does not for long
		first := s.Line[slices.IndexFunc(s.Line, func(w store.Waiter) bool {
			return w.Place == v.Place || reserves(w.Place) && slices.Contains(line, w.Place)
		})]
		if first.Place != v.Place {
			at = min(at, now.Add(first.Seen.Add(store.ReserveFor).Sub(s.Now)+again))
		}
	}
	switch left := v.opens(s); {
	case v.first != "":
		at = min(at, v.passAt())
	case left > 0 && v.index > 0:
		grace := v.grace(line[0])
		switch {
		case mustBeStill(s): // for its whole TTL since we looked: it may have been renewed since this look
			grace = 0
		case v.Place.Address() != "": // the one before us, which polls, may have had the key by then: nobody tells us
			grace = min(grace, Grace)
		}
		at = min(at, now.Add(withDrift(left)+grace+v.behind()))
	case left > 0:
		at = min(at, now.Add(withDrift(left)))
	}
	if among && v.index > 0 && reserves(v.Place) {
		var kept time.Duration // for so long, under MinHold: what was released may be the last to go, and nobody tells of it
		for _, h := range s.Holders {
			if h.Released {
				kept = max(kept, s.LeftOf(h))
			}
		}
		if kept > 0 {
			at = min(at, now.Add(withDrift(kept)+v.grace(line[0])+v.behind()))
		}
	}
	v.askAt = at
}

// mustBeStill reports whether a holder is over only when it has been seen still, because no clock can tell.
func mustBeStill(s *store.Status) bool {
	return slices.ContainsFunc(s.Holders, func(h store.Holder) bool { return s.Live(h) && !h.KnownBy.IsZero() })
}

func writes(p store.Place) bool {
	mode, _ := p.Mode()
	return mode == store.Exclusive
}

// reserves reports whether a place keeps sharers out that would not have to wait.
func reserves(p store.Place) bool { return writes(p) || p.Weight() > 1 }

// isTurn reports whether the last look says that a claim could succeed, which passes those not seen since then;
// zero: nobody.
func (v *View) isTurn(s *store.Status, unseen time.Time) bool {
	return open(s, &store.Claim{Ref: store.Ref{Mode: v.Mode}, Limit: v.Limit, Weight: v.Place.Weight(), Place: v.Place, Unseen: unseen})
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

// opens returns how long it takes until holders leave if none renews or leaves before: until the
// next one does for the first in line, and for others until that one may have the key.
func (v *View) opens(s *store.Status) time.Duration {
	if v.index <= 0 { // the last to go may do so under MinHold, and nobody tells
		next := s.Left()
		for _, h := range s.Holders {
			if s.Live(h) {
				next = min(next, s.LeftOf(h))
			}
		}
		return next
	}
	if v.Mode != store.Permits || s.Mode != store.Permits {
		return s.Left()
	}
	first := s.Waiting(v.Place)[0]
	_, limit := first.Mode()
	holders := slices.DeleteFunc(slices.Clone(s.Holders), func(h store.Holder) bool { return !s.Live(h) })
	slices.SortFunc(holders, func(a, b store.Holder) int { return cmp.Compare(s.LeftOf(a), s.LeftOf(b)) })
	free := limit - s.Taken()
	for _, h := range holders {
		if free += max(1, h.Weight); free >= first.Weight() {
			return s.LeftOf(h)
		}
	}
	return s.Left()
}

// open reports whether a status says that a claim could succeed: the key's holders admit it, and it is
// its turn.
func open(s *store.Status, c *store.Claim) bool {
	if !s.Turn(c) {
		return false
	}
	switch {
	case s.Free():
		return true
	case c.Mode == store.Exclusive || s.Mode == store.Exclusive:
		return false
	case s.Mode != c.Mode:
		return true // the claim's refusal then says what does not match
	}
	return s.Mode == store.Shared || s.Taken()+max(1, c.Weight) <= c.Limit
}

// These limit what one process may keep for itself while others are in line.
const (
	streakMost = 16                     // handoffs in a row
	streakTime = 100 * time.Millisecond // the time that they may take
)

// A streak counts how often a process kept a key for its own waiters in a row while others were in
// line.
type streak struct {
	count int
	since moment
}

// on returns the streak with one handoff more, or false if that is too many.
func (s streak) on(now moment) (streak, bool) {
	if s.count == 0 {
		s.since = now
	}
	s.count++
	return s, s.count <= streakMost && now.Sub(s.since) <= streakTime
}
