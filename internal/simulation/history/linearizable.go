package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// An attempt is one operation on a mutex with tokens, as porcupine sees it.
type attempt struct {
	kind  attemptKind
	id    string
	token int64
	renew bool // keeps its token

	unknown bool // of an unlock: it belongs to a maybe
}

type attemptKind int

const (
	lock   attemptKind = iota // was granted
	unlock                    // ended, at some time after its holder knew
	maybe                     // an unknown outcome: may have locked, and then unlocked, or neither
)

// A mutex is free (no id) or held, and remembers the newest token.
type mutex struct {
	id    string
	token int64
}

// model is a mutex whose tokens rise.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{mutex{}} },
	Step: func(state, input, _ any) []any {
		s, a := state.(mutex), input.(attempt)
		switch a.kind {
		case lock:
			if s.id != "" || a.token <= s.token && !a.renew {
				return nil
			}
			return []any{mutex{a.id, max(a.token, s.token)}}
		case unlock:
			switch {
			case s.id == a.id:
				return []any{mutex{"", s.token}}
			case a.unknown:
				return []any{s} // it never locked
			}
			return nil
		}
		if s.id == "" {
			return []any{s, mutex{a.id, s.token}}
		}
		return []any{s}
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()

// linearizable: there is an order of all grants and ends, each within the time
// that it took, in which a mutex does what was seen. What is unknown may have had
// an effect.
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
			add(e.Key, client, e.At, never-1, attempt{kind: maybe, id: id})
			add(e.Key, -client, e.At+1, never, attempt{kind: unlock, id: id, unknown: true})
		case e.Kind == Called:
			calls[e.Op] = e
		case e.Kind == Granted && !e.Shared:
			add(e.Key, client, calls[e.Op].At, e.At, attempt{kind: lock, id: e.ID, token: e.Token, renew: e.Note == Resumed})
			if end := ended[e.ID]; end != never {
				add(e.Key, -client, max(end, e.At)+1, never, attempt{kind: unlock, id: e.ID})
			}
		case e.Kind == Failed && e.Note == Unknown:
			id := fmt.Sprint("unknown-", e.Op)
			add(e.Key, client, calls[e.Op].At, never-1, attempt{kind: maybe, id: id})
			add(e.Key, -client, calls[e.Op].At+1, never, attempt{kind: unlock, id: id, unknown: true})
		}
	}
	for key, list := range ops {
		slices.SortStableFunc(list, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		if porcupine.CheckOperationsTimeout(model, list, 5*time.Second) == porcupine.Illegal {
			found = append(found, Violation{"linearizability", h.End, fmt.Sprintf("no mutex behaves like %q", key)})
		}
	}
	return found
}
