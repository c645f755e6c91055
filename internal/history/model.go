package history

import (
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A room is a key as porcupine sees it: empty, with one who has it alone, or with
// some who share it. So it is a mutex, a reader-writer lock or a semaphore, as it is
// used. It remembers the newest token, and the newest of those who had it alone.
type room struct {
	inside string // the IDs of those in it, in order
	alone  bool   // there is one, and nobody may join
	limit  int    // of permits; 0 for readers
	newest int64
	last   int64 // of those who were alone
}

// An attempt is one operation on a room.
type attempt struct {
	kind   attemptKind
	id     string
	token  int64
	shared bool
	limit  int  // of permits
	renew  bool // keeps its token

	unknown bool // of a leaving: it belongs to a maybe
}

type attemptKind int

const (
	enters attemptKind = iota // was granted
	leaves                    // ended, at some time after its holder knew
	maybe                     // an unknown outcome: may have entered, and then left, or neither
)

// enter is the room with one more inside, if that may be. The token of who is alone
// is above all before it; those of who share are in no order among themselves, but
// above all who were alone before.
func (r room) enter(a attempt) (room, bool) {
	ids := strings.Fields(r.inside)
	switch {
	case len(ids) > 0 && (r.alone || !a.shared || r.limit != a.limit),
		a.limit > 0 && len(ids) >= a.limit:
		return r, false
	case a.kind == maybe, a.renew: // its token is not known, or an old one
	case a.shared && a.token <= r.last, !a.shared && a.token <= r.newest:
		return r, false
	}
	at, _ := slices.BinarySearch(ids, a.id)
	r.inside = strings.Join(slices.Insert(ids, at, a.id), " ")
	r.alone, r.limit = !a.shared, a.limit
	r.newest = max(r.newest, a.token)
	if r.alone {
		r.last = max(r.last, a.token)
	}
	return r, true
}

func (r room) leave(a attempt) (room, bool) {
	ids := strings.Fields(r.inside)
	at, in := slices.BinarySearch(ids, a.id)
	if !in {
		return r, a.unknown // then it never entered
	}
	r.inside = strings.Join(slices.Delete(ids, at, at+1), " ")
	if r.inside == "" {
		r.alone, r.limit = false, 0
	}
	return r, true
}

// roomModel says what a room can do.
var roomModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{room{}} },
	Step: func(state, input, _ any) []any {
		r, a := state.(room), input.(attempt)
		step := r.enter
		if a.kind == leaves {
			step = r.leave
		}
		next, can := step(a)
		switch {
		case a.kind == maybe && can:
			return []any{r, next}
		case can || a.kind == maybe:
			return []any{next}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()
