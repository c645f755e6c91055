package line

import (
	"cmp"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/store"
)

// see remembers a status.
func (v *View) see(s *store.Status, now monotonic.Moment) {
	if v.Seen == nil || Changed(v.Seen, s) {
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
	for _, p := range line[:v.index] {
		if seen := waiter(v.Seen, p).Seen; seen.After(v.unseen) {
			v.unseen = seen
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
func (v *View) passAt() monotonic.Moment {
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
		return Patience(p, 0)
	}
	d := Patience(p, v.Seen.Used)
	if p.Address() == "" { // it polls as we do: the less often, the longer nothing has changed
		d = max(d, min(3*v.steady, GracePolled))
	}
	return d
}

// Patience returns how long a place is waited for that is offered the key, after a lease that was used for
// so long; 0: nobody knows for how long.
func Patience(p store.Place, used time.Duration) time.Duration {
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

// Comes reports whether the key was seen since then, and is not offered any more, or will be ours: now, or as
// soon as those may be passed to whom it is offered. One before us that could not have it keeps us from that,
// and one that was seen since puts it off.
func (v *View) Comes(t monotonic.Moment) bool {
	return v.In && v.seenAt > t && !v.blocked && (v.first == "" || !v.unseen.After(v.freed))
}

// RanOut reports whether a holder of that look has run out since.
func RanOut(s *store.Status, now time.Time) bool {
	return s != nil && slices.ContainsFunc(s.Holders, func(h store.Holder) bool { return !h.ExpireAt.After(now) })
}

// Behind returns the first place of a line that is not known, by an earlier look, to be stale by now. It is
// empty if there is none.
func Behind(s *store.Status, line []store.Place, now time.Time) store.Place {
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

// EndsUntold reports whether a holder may be over, and nobody tells a waiter, before that looks by itself: it
// was released under MinHold, is not renewed, or was granted the key since the waiter looked.
func EndsUntold(s *store.Status, p store.Place) bool {
	seen := waiter(s, p).Seen
	return slices.ContainsFunc(s.Holders, func(h store.Holder) bool {
		missed := h.Since.After(seen) && s.Now.Add(s.LeftOf(h)).Before(seen.Add(refreshMost))
		return s.Live(h) && (h.Released || s.LeftOf(h) < untold || missed)
	})
}

// Changed reports whether somebody came to hold the key, or left it, between two looks.
func Changed(a, b *store.Status) bool {
	return !a.Freed.Equal(b.Freed) || !slices.EqualFunc(a.Holders, b.Holders, func(a, b store.Holder) bool { return a.ID == b.ID })
}

// plan says when to ask, given what is seen.
func (v *View) plan(s *store.Status, now monotonic.Moment) {
	at, among := v.keep, s.Mode != store.Exclusive && !s.Free()
	line := s.Waiting(v.Place)
	switch {
	case !v.In:
		at = v.tryAt
	case among && Reserves(v.Place):
		at = v.keepAmong
	case among: // if one before us that keeps sharers out died, it does not for long
		first := s.Line[slices.IndexFunc(s.Line, func(w store.Waiter) bool {
			return w.Place == v.Place || Reserves(w.Place) && slices.Contains(line, w.Place)
		})]
		if first.Place != v.Place {
			at = min(at, now.Add(first.Seen.Add(store.ReserveFor).Sub(s.Now)+again))
		}
	}
	switch left := v.opens(s); {
	case v.first != "":
		at = min(at, v.passAt())
	case left > 0 && v.index > 0:
		at = min(at, now.Add(term.Drifted(left)+v.grace(line[0])+v.behind()))
	case left > 0:
		at = min(at, now.Add(term.Drifted(left)))
	}
	v.askAt = at
}

func writes(p store.Place) bool {
	mode, _ := p.Mode()
	return mode == store.Exclusive
}

// Reserves reports whether a place keeps sharers out that would not have to wait.
func Reserves(p store.Place) bool { return writes(p) || p.Weight() > 1 }

// isTurn reports whether a claim makes sense by what is seen, which passes those not seen since then; zero: nobody.
func (v *View) isTurn(s *store.Status, unseen time.Time) bool {
	return Open(s, &store.Claim{Ref: store.Ref{Mode: v.Mode}, Limit: v.Limit, Weight: v.Place.Weight(), Place: v.Place, Unseen: unseen})
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

// Open reports whether a claim makes sense, given a status: the key's holders admit it, and it is
// its turn.
func Open(s *store.Status, c *store.Claim) bool {
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
