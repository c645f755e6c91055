package history

import (
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A lockState is a key as porcupine sees it: free, held exclusively, or shared. So it is a
// mutex, a reader-writer lock or a semaphore, depending on how it is used.
type lockState struct {
	holders         string // their IDs, sorted
	exclusive       bool
	permits         bool  // that are held; otherwise readers share it
	taken           int   // permits, or holders
	newest          int64 // token
	newestExclusive int64 // token
}

// An operation is one step that is tried on a lock.
type operation struct {
	kind  operationKind
	id    string
	token int64
	mode  Mode

	keepsToken bool // of a grant by a ticket
	ofMaybe    bool // of an end: the grant may not have taken effect
}

type operationKind int

const (
	granted operationKind = iota
	ended                 // at some time after the holder knew
	maybe                 // an unknown outcome: granted and ended later, or neither
)

// grant returns the state with one more holder, if the lock allows it. The token of an
// exclusive holder is above all tokens before it. Tokens of holders that share are in no
// order among themselves, but above those of all exclusive holders before them.
func (s lockState) grant(o operation) (lockState, bool) {
	ids := strings.Fields(s.holders)
	switch {
	case len(ids) > 0 && (s.exclusive || !o.mode.Shared || s.permits != o.mode.permits()),
		o.mode.permits() && s.taken+o.mode.takes() > o.mode.Limit:
		return s, false
	case o.kind == maybe, o.keepsToken: // the token is unknown, or an old one
	case o.mode.Shared && o.token <= s.newestExclusive, !o.mode.Shared && o.token <= s.newest:
		return s, false
	}
	at, _ := slices.BinarySearch(ids, o.id)
	s.holders = strings.Join(slices.Insert(ids, at, o.id), " ")
	s.exclusive, s.permits = !o.mode.Shared, o.mode.permits()
	s.taken += o.mode.takes()
	s.newest = max(s.newest, o.token)
	if s.exclusive {
		s.newestExclusive = max(s.newestExclusive, o.token)
	}
	return s, true
}

// end returns the state without a holder.
func (s lockState) end(o operation) (lockState, bool) {
	ids := strings.Fields(s.holders)
	at, in := slices.BinarySearch(ids, o.id)
	if !in {
		return s, o.ofMaybe
	}
	s.holders = strings.Join(slices.Delete(ids, at, at+1), " ")
	s.taken -= o.mode.takes()
	if s.holders == "" {
		s.exclusive, s.permits = false, false
	}
	return s, true
}

// lockModel tells porcupine what a lock can do.
var lockModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{lockState{}} },
	Step: func(state, input, _ any) []any {
		s, o := state.(lockState), input.(operation)
		step := s.grant
		if o.kind == ended {
			step = s.end
		}
		next, can := step(o)
		switch {
		case o.kind == maybe && can:
			return []any{s, next}
		case can || o.kind == maybe:
			return []any{next}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()
