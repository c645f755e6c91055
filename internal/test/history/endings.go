package history

import (
	"fmt"
	"slices"
	"time"
)

// outlived checks that no holder stays longer than its TTL and some slack without being
// renewed, so none stays after its owner's death either.
func outlived(h *History) (found []Violation) {
	most := h.TTL + h.TTL/20 + 10*time.Second + h.Tolerance + h.Apart
	for _, e := range h.Events {
		if held := max(e.Until, e.Written) - e.At; (e.Kind == Applied || e.Kind == Extended) && held > most {
			found = append(found, Violation{"outlived", e.At, fmt.Sprintf("%q is held for %v; the TTL is %v", e.Key, held, h.TTL)})
		}
	}
	return found
}

// ghosts checks that a holder that no caller was given does not stay. If nothing hinders
// its clean-up it is gone soon; otherwise when it expires. A primary that steps down or
// restarts forgets which commands it must refuse, so then only the latter holds.
func ghosts(h *History) (found []Violation) {
	if h.GhostLimit == 0 {
		return nil
	}
	calls, failed := map[int]Event{}, map[int]Event{}
	ops, twins := map[string]int{}, map[string]bool{}
	for _, e := range h.Events {
		switch e.Kind {
		case Called:
			calls[e.Op] = e
		case Failed:
			failed[e.Op] = e
		case Applied:
			ops[e.ID] = e.Op
			twins[e.ID] = twins[e.ID] || e.Note == Late
		}
	}
	for _, l := range h.leases() {
		if l.granted != never || l.applied == never {
			continue
		}
		call, failure := calls[ops[l.id]], failed[ops[l.id]]
		since, allowed := max(l.applied, failure.At), h.GhostLimit
		late := l.applied > failure.At && failure.Op != 0
		switch {
		case twins[l.id], late && failure.Note == Held && failure.At-call.At < QuickRefusal:
			continue // docs/internals/design.md §4.1: the twin of a quick refusal is left to its expiry
		case !h.Numbered: // clean-ups are repeated, with growing pauses; a waiter goes on meanwhile
			allowed += min(h.LateGhostLimit, (l.applied-call.At)*3/2)
		}
		if l.leaves()-since > allowed && !h.hindered(l.client, call.At, since, since+allowed) {
			found = append(found, Violation{"ghost", since + allowed, fmt.Sprintf("%q is held in the name of client %d, which does not know, for %v", l.key, l.client, l.leaves()-since)})
		}
	}
	return found
}

// QuickRefusal is how long a refusal takes at most that needs no clean-up.
const QuickRefusal = 1050 * time.Millisecond

// hindered reports whether a fault hindered a client between since and to, or whether,
// since its call, the primary changed or the client's clock stood still.
func (h *History) hindered(client int, call, since, to time.Duration) bool {
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		if e.Kind != Trouble || e.At > to {
			return false
		}
		lasting := e.Note == Failover || e.Note == Stopped && e.Client == client
		return lasting && e.Until >= call || e.Client == client && e.Until > since
	})
}

// primaryChanged reports whether there was a failover between since and to. A primary may
// then have forgotten its sessions, or have gone on without knowing that it was deposed.
func (h *History) primaryChanged(since, to time.Duration) bool {
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		return e.Kind == Trouble && e.Note == Failover && e.At <= to && e.Until >= since
	})
}

// answers returns when each call was answered, by Op.
func (h *History) answers() map[int]time.Duration {
	at := map[int]time.Duration{}
	for _, e := range h.Events {
		if e.Kind == Granted || e.Kind == Failed {
			at[e.Op] = e.At
		}
	}
	return at
}

// answered checks that every call returns, and not much later than its caller gave up.
func answered(h *History) (found []Violation) {
	if h.NoDB {
		return nil // processes are stopped and killed
	}
	answers := h.answers()
	const grace = 250 * time.Millisecond
	for _, e := range h.Events {
		if e.Kind != Called {
			continue
		}
		at, ok := answers[e.Op]
		switch {
		case !ok && h.End > 0:
			found = append(found, Violation{"unanswered", e.At, fmt.Sprintf("client %d's call for %q never returns", e.Client, e.Key)})
		case ok && e.Until > 0 && at > e.Until+grace:
			found = append(found, Violation{"answered late", at, fmt.Sprintf("client %d gave up at %v", e.Client, e.Until)})
		}
	}
	return found
}
