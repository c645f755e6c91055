package memstore

import (
	"fmt"

	"github.com/mongolock/mongolock/store"
)

// errUndone answers a claim that comes after its own Undo.
var errUndone = fmt.Errorf("memstore: this claim was undone (%w)", store.ErrNotApplied)

// rememberUndone bounds the memory of undone claims. It counts claims, not time:
// Undo is not told the claim's TTL, and a clock of the tests' making may jump. A
// claim that is late by more than so many others would be granted to nobody and
// run out by its own TTL, which is what any store falls back on.
const rememberUndone = 4096

// undone is the last IDs that were undone.
type undone struct {
	ids  map[string]bool
	ring []string // in order of arrival, from next on once full
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
