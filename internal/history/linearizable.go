package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// linearizable: there is an order of all grants and ends, each within the time
// that it took, in which a mutex does what was seen, or where a key is shared a
// reader-writer lock or a semaphore. What is unknown may have had an effect.
func linearizable(h *History) (found []Violation) {
	ops := map[string][]porcupine.Operation{}
	add := func(key string, client int, from, to time.Duration, a attempt) {
		ops[key] = append(ops[key], porcupine.Operation{ClientId: client, Input: a, Call: int64(from), Return: int64(to)})
	}
	calls := map[int]Event{}
	client := 0
	ended := map[string]time.Duration{}
	for _, l := range h.leases() {
		ended[l.id] = l.ends()
	}
	answered := map[int]bool{}
	for _, e := range h.Events {
		if e.Kind == Granted || e.Kind == Failed {
			answered[e.Op] = true
		}
	}
	for _, e := range h.Events {
		client++
		switch {
		case e.Kind == Called && !answered[e.Op]: // its process was killed
			id := fmt.Sprint("unanswered-", e.Op)
			add(e.Key, client, e.At, never-1, attempt{kind: maybe, id: id, shared: e.Shared, limit: e.Limit})
			add(e.Key, -client, e.At+1, never, attempt{kind: leaves, id: id, unknown: true})
		case e.Kind == Called:
			calls[e.Op] = e
		case e.Kind == Granted:
			add(e.Key, client, calls[e.Op].At, e.At, attempt{kind: enters, id: e.ID, token: e.Token, shared: e.Shared, limit: e.Limit, renew: e.Note == Resumed})
			if end := ended[e.ID]; end != never {
				add(e.Key, -client, max(end, e.At)+1, never, attempt{kind: leaves, id: e.ID})
			}
		case e.Kind == Failed && e.Note == Unknown:
			id := fmt.Sprint("unknown-", e.Op)
			call := calls[e.Op]
			add(e.Key, client, call.At, never-1, attempt{kind: maybe, id: id, shared: call.Shared, limit: call.Limit})
			add(e.Key, -client, call.At+1, never, attempt{kind: leaves, id: id, unknown: true})
		}
	}
	for key, list := range ops {
		slices.SortStableFunc(list, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		switch porcupine.CheckOperationsTimeout(roomModel, list, undecided) {
		case porcupine.Illegal:
			found = append(found, Violation{"linearizability", h.End, fmt.Sprintf("no %s behaves like %q", kindOf(list), key)})
		case porcupine.Unknown:
			found = append(found, Violation{"linearizability", h.End, fmt.Sprintf("%q: not decided in %v", key, undecided)})
		case porcupine.Ok:
		}
	}
	return found
}

// undecided is after how long nobody can say whether a history is possible. Nearly
// all take well under a millisecond.
const undecided = 10 * time.Second

// kindOf is what a key is used as.
func kindOf(list []porcupine.Operation) string {
	kind := "mutex"
	for _, o := range list {
		switch a := o.Input.(attempt); {
		case a.limit > 0:
			return "semaphore"
		case a.shared:
			kind = "reader-writer lock"
		}
	}
	return kind
}
