package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// decisionLimit is how long porcupine may take to decide about a key, unless the history says
// otherwise. Nearly all histories take well under a millisecond; many outcomes that stayed
// unknown make one long.
const decisionLimit = time.Minute

// linearizable checks that there is an order of all grants and ends, each within the time
// that it took, that a mutex, a reader-writer lock or a semaphore could have shown. An
// unknown outcome may have had an effect.
func linearizable(h *History) (found []Violation) {
	limit := cmp.Or(h.DecideIn, decisionLimit)
	for key, list := range h.operations() {
		slices.SortStableFunc(list, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		switch porcupine.CheckOperationsTimeout(lockModel, list, limit) {
		case porcupine.Illegal:
			found = append(found, Violation{"linearizability", h.End, fmt.Sprintf("no %s behaves like %q", kindOf(list), key)})
		case porcupine.Unknown:
			found = append(found, Violation{"linearizability", h.End, fmt.Sprintf("%q: not decided in %v", key, limit)})
		case porcupine.Ok:
		}
	}
	return found
}

// operations returns what was tried on each key.
func (h *History) operations() map[string][]porcupine.Operation {
	all := map[string][]porcupine.Operation{}
	add := func(key string, client int, from, to time.Duration, o operation) {
		all[key] = append(all[key], porcupine.Operation{ClientId: client, Input: o, Call: int64(from), Return: int64(to)})
	}
	addMaybe := func(call Event, client int, id string, by time.Duration) {
		add(call.Key, client, call.At, by, operation{kind: maybe, id: id, mode: call.Mode})
		add(call.Key, -client, call.At+1, never, operation{kind: ended, id: id, mode: call.Mode, ofMaybe: true})
	}
	calls, answers, leases, applied := map[int]Event{}, h.answers(), h.byID(), h.applied()
	for i, e := range h.Events {
		client := i + 1 // porcupine wants one operation at a time of each client
		_, answered := answers[e.Op]
		by, was := applied(e.Op)
		switch {
		case e.Kind == Called && !answered && !was:
		case e.Kind == Called && !answered: // its process was killed
			addMaybe(e, client, fmt.Sprint("unanswered-", e.Op), by)
		case e.Kind == Called:
			calls[e.Op] = e
		case e.Kind == Granted:
			add(e.Key, client, calls[e.Op].At, e.At, operation{kind: granted, id: e.ID, token: e.Token, mode: e.Mode, keepsToken: e.Note == Resumed})
			if end := leases[e.ID].ends(); end != never {
				add(e.Key, -client, max(end, e.At)+1, never, operation{kind: ended, id: e.ID, mode: e.Mode})
			}
		case e.Kind == Failed && e.Note == Unknown && was:
			addMaybe(calls[e.Op], client, fmt.Sprint("unknown-", e.Op), by)
		}
	}
	return all
}

// applied tells which calls may have had an effect, and by when. Where the database told what it applied, both are
// known: others, and those that may have one at any time, take long to decide about.
func (h *History) applied() func(op int) (by time.Duration, was bool) {
	ops := map[int]time.Duration{}
	for _, e := range h.Events {
		if e.Kind == Applied {
			ops[e.Op] = e.At
		}
	}
	return func(op int) (time.Duration, bool) {
		if len(ops) == 0 {
			return never - 1, true
		}
		by, was := ops[op]
		return by, was
	}
}

// kindOf names what a key is used as.
func kindOf(list []porcupine.Operation) string {
	kind := "mutex"
	for _, o := range list {
		switch o := o.Input.(operation); {
		case o.mode.permits():
			return "semaphore"
		case o.mode.Shared:
			kind = "reader-writer lock"
		}
	}
	return kind
}
