package memstore

import (
	"fmt"

	"github.com/mongolock/mongolock/store"
)

// errUndone refuses a claim that arrives after its own Undo.
var errUndone = fmt.Errorf("memstore: this claim was undone (%w)", store.ErrNotApplied)

// rememberUndone bounds the memory of undone claims. It counts claims, not time: Undo is not
// told the claim's TTL, and a test's clock may jump. A claim that arrives after more than this
// many others were undone is granted, has no lease, and expires after its TTL; no store can
// remember for ever.
const rememberUndone = 4096

// undone holds the IDs that were undone last.
type undone struct {
	ids  map[string]bool
	ring []string // in the order of arrival; once it is full the oldest is at next
	next int
}

func (u *undone) has(id string) bool { return u.ids[id] }

func (u *undone) add(id string) {
	if u.ids[id] {
		return
	}
	if u.ids == nil {
		u.ids = make(map[string]bool)
	}
	u.ids[id] = true
	if len(u.ring) < rememberUndone {
		u.ring = append(u.ring, id)
		return
	}
	delete(u.ids, u.ring[u.next])
	u.ring[u.next] = id
	u.next = (u.next + 1) % rememberUndone
}
