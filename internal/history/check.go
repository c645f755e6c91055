package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Check judges a history by every rule there is.
func (h *History) Check() []Violation {
	var all []Violation
	for _, check := range []func(*History) []Violation{
		exclusion, permits, tokens, register, collateral, returned, words, outlived, ghosts, answered, served, linearizable,
	} {
		all = append(all, check(h)...)
	}
	slices.SortStableFunc(all, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return all
}

// byKey are the leases that somebody was given, by key and grant.
func (h *History) byKey() map[string][]*lease {
	keys := map[string][]*lease{}
	for _, l := range h.leases() {
		if l.granted != never {
			keys[l.key] = append(keys[l.key], l)
		}
	}
	for _, list := range keys {
		slices.SortStableFunc(list, func(a, b *lease) int { return cmp.Compare(a.starts(), b.starts()) })
	}
	return keys
}

// exclusion: no two live exclusive leases, and a holder whose lease ended by
// itself was told one margin before the next is granted the key.
func exclusion(h *History) (found []Violation) {
	for _, list := range h.byKey() {
		for i, l := range list {
			for _, next := range list[i+1:] {
				if compatible(l, next) {
					continue
				}
				if v, ok := h.overlap(l, next); ok {
					found = append(found, v)
				}
			}
		}
	}
	return found
}

func (h *History) overlap(l, next *lease) (Violation, bool) {
	start := next.starts()
	switch {
	case l.told > next.granted && l.ends() > next.granted:
		return Violation{"two live leases", next.granted, fmt.Sprintf("%q granted to client %d while client %d holds it", l.key, next.client, l.client)}, true
	case l.told > start && (l.letGo > start || !h.NoDB && l.note == Released):
		return Violation{"told too late", start, fmt.Sprintf("%q is client %d's, and client %d, who had it, is told %v later", l.key, next.client, l.client, l.told-start)}, true
	case l.letGo > start && start-l.told < h.Margin-h.Blur && l.note != Closed:
		return Violation{"no margin", start, fmt.Sprintf("%q is client %d's %v after client %d was told, less than the margin of %v", l.key, next.client, start-l.told, l.client, h.Margin-h.Blur)}, true
	}
	return Violation{}, false
}

// tokens: strictly rising from grant to grant. Those of leases that share a key are
// in no order among themselves, but above every exclusive one before them, and below
// every one after.
func tokens(h *History) (found []Violation) {
	for _, list := range h.byKey() {
		var last, newest int64 // exclusive ones, all
		for _, l := range list {
			if l.resumed {
				continue
			}
			below := newest
			if l.shared {
				below = last
			} else {
				last = l.token
			}
			if l.token <= below {
				found = append(found, Violation{"tokens", l.granted, fmt.Sprintf("%q: token %d after %d", l.key, l.token, below)})
			}
			newest = max(newest, l.token)
		}
	}
	return found
}

// register: a fenced register never goes back, and takes what a live holder writes.
func register(h *History) (found []Violation) {
	newest := map[string]int64{}
	leases := map[string]*lease{}
	for _, l := range h.leases() {
		leases[l.id] = l
	}
	for _, e := range h.Events {
		switch e.Kind {
		case Register:
			if e.Token < newest[e.Key] {
				found = append(found, Violation{"register", e.At, fmt.Sprintf("%q goes back from %d to %d", e.Key, newest[e.Key], e.Token)})
			}
			newest[e.Key] = e.Token
		case Fenced:
			if l := leases[e.ID]; e.Live || !h.NoDB && l != nil && e.At < l.ends() {
				found = append(found, Violation{"register", e.At, fmt.Sprintf("%q: a live holder's write is fenced off, its token %d", e.Key, e.Token)})
			}
		}
	}
	return found
}

// collateral: nobody's lease is touched by another's call, nor by its own client's
// while it is live.
func collateral(h *History) (found []Violation) {
	leases := map[string]*lease{}
	for _, l := range h.leases() {
		leases[l.id] = l
	}
	for _, e := range h.Events {
		if e.Kind != Dropped && e.Kind != Shortened {
			continue
		}
		l := leases[e.ID]
		held := l.granted != never && e.At < l.ends() && e.At >= l.starts()
		switch {
		case e.Note == Swept && !e.Live:
		case l.note == Detached && e.At >= l.letGo: // taken up by a ticket
		case e.At >= l.letGo && h.changedPrimary(l.letGo, e.At):
			// it left on a primary that was no longer one; on the next it is still there,
			// and who saw it leave comes in (docs/design.md §4.2)
		case e.Note != Ours && e.Live:
			found = append(found, Violation{"collateral", e.At, fmt.Sprintf("%q: a live holder of client %d is %s by client %d", e.Key, l.client, e.Kind, e.Client)})
		case e.Kind == Shortened && e.Live && held, e.Kind == Dropped && held:
			found = append(found, Violation{"collateral", e.At, fmt.Sprintf("%q: client %d's own lease is %s while it holds", e.Key, l.client, e.Kind)})
		}
	}
	return found
}

// returned: who was removed does not come back. A primary that forgot which commands
// it has had may take one twice.
func returned(h *History) (found []Violation) {
	gone := map[string]bool{}
	for _, e := range h.Events {
		switch {
		case e.Kind == Dropped:
			gone[e.ID] = true
		case e.Kind == Applied && gone[e.ID] && !h.changedPrimary(0, e.At):
			found = append(found, Violation{"returned", e.At, fmt.Sprintf("%q: a holder of client %d that was gone is back", e.Key, e.Client)})
		}
	}
	return found
}

// outlived: nothing is held for longer than the TTL and some slack without being
// renewed, so not after its owner's death either.
func outlived(h *History) (found []Violation) {
	most := h.TTL + h.TTL/20 + 10*time.Second + h.Blur
	for _, e := range h.Events {
		if (e.Kind == Applied || e.Kind == Extended) && e.Until-e.At > most {
			found = append(found, Violation{"outlived", e.At, fmt.Sprintf("%q is held for %v, the TTL is %v", e.Key, e.Until-e.At, h.TTL)})
		}
	}
	return found
}

// ghosts: what nobody was given does not stay. If nothing hinders the clean-up it
// is gone soon; at the latest when it has run out. A primary that steps down or
// restarts forgets which commands it is to refuse, so then only the latter holds.
func ghosts(h *History) (found []Violation) {
	if h.Quick == 0 {
		return nil
	}
	calls, failed := map[int]Event{}, map[int]Event{}
	ops := map[string]int{}
	for _, e := range h.Events {
		switch e.Kind {
		case Called:
			calls[e.Op] = e
		case Failed:
			failed[e.Op] = e
		case Applied:
			ops[e.ID] = e.Op
		}
	}
	for _, l := range h.leases() {
		if l.granted != never || l.applied == never {
			continue
		}
		call, failure := calls[ops[l.id]], failed[ops[l.id]]
		since, allowed := max(l.applied, failure.At), h.Quick
		late := l.applied > failure.At && failure.Op != 0
		switch {
		case late && failure.Note == Held && failure.At-call.At < QuickRefusal:
			continue // see docs/design.md §4.1: a twin of a quick refusal is taken to be impossible
		case !h.Numbers: // clean-ups are repeated, with pauses that grow; a waiter goes on meanwhile
			allowed += min(h.Patient, (l.applied-call.At)*3/2)
		}
		end := min(l.dropped, l.until)
		if end-since > allowed && !h.troubled(l.client, call.At, since, since+allowed) {
			found = append(found, Violation{"ghost", since + allowed, fmt.Sprintf("%q is held by nobody, in the name of client %d, for %v", l.key, l.client, end-since)})
		}
	}
	return found
}

// QuickRefusal is how long a refusal takes at most that needs no clean-up.
const QuickRefusal = 1050 * time.Millisecond

// troubled reports whether something hindered a client between since and to, or
// whether the primary changed, or the client's clock stood still, since the call.
func (h *History) troubled(client int, call, since, to time.Duration) bool {
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		if e.Kind != Trouble || e.At > to {
			return false
		}
		lasting := e.Note == Failover || e.Note == Stopped && e.Client == client
		return lasting && e.Until >= call || e.Client == client && e.Until > since
	})
}

// changedPrimary reports whether there was a failover between since and to, so that a
// primary may have forgotten something or have gone on without knowing.
func (h *History) changedPrimary(since, to time.Duration) bool {
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		return e.Kind == Trouble && e.Note == Failover && e.At <= to && e.Until >= since
	})
}

// answered: every call is, and none much later than its caller wanted to wait.
func answered(h *History) (found []Violation) {
	done := map[int]time.Duration{}
	for _, e := range h.Events {
		if e.Kind == Granted || e.Kind == Failed {
			done[e.Op] = e.At
		}
	}
	const grace = 250 * time.Millisecond
	for _, e := range h.Events {
		if e.Kind != Called {
			continue
		}
		at, ok := done[e.Op]
		switch {
		case !ok && h.End > 0 && !h.NoDB:
			found = append(found, Violation{"unanswered", e.At, fmt.Sprintf("client %d waits for %q for ever", e.Client, e.Key)})
		case ok && e.Until > 0 && at > e.Until+grace && !h.NoDB:
			found = append(found, Violation{"answered late", at, fmt.Sprintf("client %d left at %v", e.Client, e.Until)})
		}
	}
	return found
}

// served: in calm a key is not free for long while somebody waits for it.
func served(h *History) (found []Violation) {
	if !h.Calm || h.Gap == 0 {
		return nil
	}
	type span struct{ from, to time.Duration }
	holds := map[string][]span{}
	for _, l := range h.leases() {
		if l.applied != never {
			holds[l.key] = append(holds[l.key], span{l.applied, min(l.dropped, l.until)})
		}
	}
	done := map[int]time.Duration{}
	for _, e := range h.Events {
		if e.Kind == Granted || e.Kind == Failed {
			done[e.Op] = e.At
		}
	}
	for _, e := range h.Events {
		if e.Kind != Called || e.Until == 0 {
			continue
		}
		free := e.At
		list := append(slices.Clone(holds[e.Key]), span{done[e.Op], done[e.Op]})
		slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		for _, s := range list {
			if s.from > done[e.Op] {
				break
			}
			if s.from-free > h.Gap {
				found = append(found, Violation{"served late", s.from, fmt.Sprintf("%q was free for %v while client %d waited", e.Key, s.from-free, e.Client)})
			}
			free = max(free, s.to)
		}
	}
	return found
}
