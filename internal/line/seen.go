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
	stayed := v.Seen != nil && v.joined(v.Seen).Equal(v.joined(s))
	last := v.Seen
	v.Seen = s
	line := s.Waiting(v.Place, "")
	v.index = slices.Index(line, v.Place)
	v.In = v.index >= 0 && v.Place != ""
	n := s.Offered(line)
	switch {
	case n == 0 || v.index < n:
		v.Away()
	case slices.Contains(v.beside, line[0]) && !taken(last, s, line[0]):
		v.first = line[0]
	default:
		v.beside = slices.Clone(line[:n])
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

// taken reports whether somebody had the key between two looks so that it was not offered to p.
func taken(last, s *store.Status, p store.Place) bool {
	if !writes(p) && last.Mode != store.Exclusive && s.Mode != store.Exclusive {
		return false
	}
	return !SameHolders(last, s)
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

// Missed reports whether a waiter has not claimed since a live holder was granted the key, and need not
// before that one may be over: it may not know when.
func Missed(s *store.Status, p store.Place) bool {
	i := slices.IndexFunc(s.Line, func(w store.Waiter) bool { return w.Place == p })
	return i >= 0 && slices.ContainsFunc(s.Holders, func(h store.Holder) bool {
		seen := s.Line[i].Seen
		return s.Live(h) && h.Since.After(seen) && s.Now.Add(s.LeftOf(h)).Before(seen.Add(refreshMost))
	})
}

// SameHolders reports whether two looks show the same holders.
func SameHolders(a, b *store.Status) bool {
	return slices.EqualFunc(a.Holders, b.Holders, func(a, b store.Holder) bool { return a.ID == b.ID })
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
	line := s.Waiting(v.Place, "")
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
		at = min(at, v.since.Add(v.delay(v.first)))
	case left > 0 && v.index > 0:
		at = min(at, now.Add(term.Drifted(left)+v.delay(line[0])))
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
	return Open(s, &store.Claim{Ref: store.Ref{Mode: v.Mode}, Limit: v.Limit, Weight: v.Place.Weight(), Place: v.Place})
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
	first := s.Waiting(v.Place, "")[0]
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
