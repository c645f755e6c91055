package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Check judges a history by every rule and returns the violations in order of time.
func (h *History) Check() []Violation {
	var all []Violation
	for _, check := range []func(*History) []Violation{
		exclusion, permits, tokens, register, collateral, returned, inLine, outlived, ghosts, answered, linearizable,
	} {
		all = append(all, check(h)...)
	}
	slices.SortStableFunc(all, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return all
}

// exclusion checks that no two incompatible leases are live at once, and that a holder
// whose lease ended by itself was told one margin before the next holder is granted the key.
func exclusion(h *History) (found []Violation) {
	for _, list := range h.byKey() {
		for i, l := range list {
			for _, next := range list[i+1:] {
				if compatible(l.mode, next.mode) {
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
	start, margin := next.starts(), h.Margin-h.Tolerance
	switch {
	case l.told > next.granted && l.ends() > next.granted:
		return Violation{"two live leases", next.granted, fmt.Sprintf("%q is granted to client %d while client %d holds it", l.key, next.client, l.client)}, true
	case l.told > start && (l.letGo > start || !h.NoDB && l.note == Released):
		return Violation{"told too late", start, fmt.Sprintf("%q is client %d's; client %d, its last holder, is told %v later", l.key, next.client, l.client, l.told-start)}, true
	case l.letGo > start && start-l.told < margin && l.note != Closed:
		return Violation{"no margin", start, fmt.Sprintf("%q is client %d's %v after client %d was told, less than the margin of %v", l.key, next.client, start-l.told, l.client, margin)}, true
	}
	return Violation{}, false
}

// tokens checks that tokens rise from grant to grant. The tokens of leases that share a
// key have no order among themselves, but are above that of every exclusive lease before
// them and below that of every exclusive lease after them.
func tokens(h *History) (found []Violation) {
	for _, list := range h.byKey() {
		var newestExclusive, newest int64
		for _, l := range list {
			if l.resumed {
				continue
			}
			below := newest
			if l.mode.Shared {
				below = newestExclusive
			} else {
				newestExclusive = l.token
			}
			if l.token <= below {
				found = append(found, Violation{"tokens", l.granted, fmt.Sprintf("%q: token %d after %d", l.key, l.token, below)})
			}
			newest = max(newest, l.token)
		}
	}
	return found
}

// register checks that a fenced register never goes back, and that it accepts the writes
// of a live holder.
func register(h *History) (found []Violation) {
	newest := map[string]int64{}
	leases := h.byID()
	for _, e := range h.Events {
		switch e.Kind {
		case Register:
			if e.Token < newest[e.Key] {
				found = append(found, Violation{"register", e.At, fmt.Sprintf("%q goes back from token %d to %d", e.Key, newest[e.Key], e.Token)})
			}
			newest[e.Key] = e.Token
		case Fenced:
			if l := leases[e.ID]; e.Live || !h.NoDB && l != nil && e.At < l.ends() {
				found = append(found, Violation{"register", e.At, fmt.Sprintf("%q: a live holder's write with token %d is refused", e.Key, e.Token)})
			}
		}
	}
	return found
}

// collateral checks that no call touches another client's live lease, and that a client
// does not end a lease of its own while it is held.
func collateral(h *History) (found []Violation) {
	leases, answers := h.byID(), h.answers()
	failed := map[string]time.Duration{} // when claims that may have been applied did: their clients take them back
	for _, e := range h.Events {
		if at, is := answers[e.Op]; e.Kind == Applied && is {
			failed[e.ID] = at
		}
		if e.Kind != Dropped && e.Kind != Shortened {
			continue
		}
		l := leases[e.ID]
		left := l.letGo
		if at, is := failed[e.ID]; is && l.granted == never {
			left = at
		}
		held := l.granted != never && e.At < l.ends() && e.At >= l.starts()
		switch {
		case e.Note == Swept && !e.Live:
		case e.Note == Broken && !held:
		case l.note == Detached && e.At >= l.letGo: // resumed by its ticket
		case e.At >= left && h.primaryChanged(left, e.At):
			// The holder left on a deposed primary and still stands on the next one. A client
			// that saw it leave takes the key (docs/internals/design.md §4.2).
		case e.Note != Ours && e.Live:
			found = append(found, Violation{"collateral", e.At, fmt.Sprintf("%q: a live holder of client %d is %s by client %d", e.Key, l.client, e.Kind, e.Client)})
		case e.Kind == Shortened && e.Live && held, e.Kind == Dropped && held:
			found = append(found, Violation{"collateral", e.At, fmt.Sprintf("%q: client %d's own lease is %s while it holds", e.Key, l.client, e.Kind)})
		}
	}
	return found
}

// returned checks that a removed holder does not come back. A primary that forgot its
// sessions may apply a command twice; that is no violation.
func returned(h *History) (found []Violation) {
	gone := map[string]bool{}
	for _, e := range h.Events {
		switch {
		case e.Kind == Dropped:
			gone[e.ID] = true
		case e.Kind == Applied && gone[e.ID] && !h.primaryChanged(0, e.At):
			found = append(found, Violation{"returned", e.At, fmt.Sprintf("%q: a removed holder of client %d is back", e.Key, e.Client)})
		}
	}
	return found
}
