package storetest

import (
	"time"

	"github.com/mongolock/mongolock/store"
)

var undoClaims = []claim{
	{"UndoRemovesAClaimThatLanded", undoRemovesAClaimThatLanded},
	{"UndoOfAClaimThatDidNotLandChangesNothing", undoOfAClaimThatDidNotLandChangesNothing},
	{"UndoOfATransferThatLandedFreesTheKey", undoOfATransferThatLandedFreesTheKey},
	{"UndoOfATransferThatDidNotLandTakesFrom", undoOfATransferThatDidNotLandTakesFrom},
	{"UndoWithoutFromLeavesIt", undoWithoutFromLeavesIt},
	{"UndoNamesTheHolders", undoNamesTheHolders},
}

// undo cleans up once. Whether that settles it depends on what the store knows of
// its own commands, and so is not claimed of what never landed.
func (e *env) undo(claim store.Ref, from *store.Ref) (settled bool) {
	e.Helper()
	settled, err := e.store.Undo(e.ctx(), claim, from)
	if err != nil {
		e.Fatalf("undo on %q: %v", claim.Key, err)
	}
	return settled
}

// settle cleans up until that is settled.
func (e *env) settle(claim store.Ref, from *store.Ref) {
	e.Helper()
	for give := time.Now().Add(bound); !e.undo(claim, from); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(give) {
			e.Errorf("undo of what landed on %q is not settled after %v", claim.Key, bound)
			return
		}
	}
}

func undoRemovesAClaimThatLanded(e *env) {
	h := e.hold(e.key("undone"), long)
	e.undo(h.Ref, nil)
	e.free(h.Key)
	e.settle(h.Ref, nil)
	_, err := e.renew(h.Ref, long)
	e.gone("renewal after undo", err)

	next := e.hold(h.Key, long)
	e.unchanged(h.Key, func() { e.undo(h.Ref, nil) })
	e.holds(next)
}

func undoOfAClaimThatDidNotLandChangesNothing(e *env) {
	c := e.claim(e.key("undone"), long)
	e.undo(c.Ref, nil)
	e.free(c.Key)
	e.hold(c.Key, long)
}

func undoOfATransferThatLandedFreesTheKey(e *env) {
	from := e.hold(e.key("undone"), long)
	to := e.passOn(from.Ref, e.claim(from.Key, long))
	e.undo(to.Ref, &from.Ref)
	e.free(to.Key)
	e.settle(to.Ref, &from.Ref)
}

func undoOfATransferThatDidNotLandTakesFrom(e *env) {
	from := e.hold(e.key("undone"), long)
	to := e.claim(from.Key, long)
	e.undo(to.Ref, &from.Ref)
	e.free(to.Key)
	_, err := e.renew(from.Ref, long)
	e.gone("renewal of what was to be left", err)
}

// Undo without from follows a Resume, whose ticket stays good if it never landed.
func undoWithoutFromLeavesIt(e *env) {
	from := e.hold(e.key("resumed"), long)
	to := e.claim(from.Key, long)
	e.unchanged(from.Key, func() { e.undo(to.Ref, nil) })
	if _, err := e.renew(from.Ref, long); err != nil {
		e.Errorf("renewal of what was to stay: %v", err)
	}

	landed := e.passOn(from.Ref, e.claim(from.Key, long))
	e.undo(landed.Ref, nil)
	e.free(landed.Key)
}

func undoNamesTheHolders(e *env) {
	h := e.hold(e.key("held"), long)
	old, never := e.claim(h.Key, long), e.claim(h.Key, long)
	e.unchanged(h.Key, func() {
		e.undo(never.Ref, nil)
		e.undo(never.Ref, &old.Ref)
	})
	e.holds(h)
}
