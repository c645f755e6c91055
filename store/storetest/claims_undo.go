package storetest

import (
	"time"

	"github.com/mongolock/mongolock/store"
)

var undoClaims = []claim{
	{"AnUndoRemovesAnAppliedClaim", anUndoRemovesAnAppliedClaim},
	{"AnUndoOfAClaimThatWasNotAppliedChangesNothing", anUndoOfAClaimThatWasNotAppliedChangesNothing},
	{"AnUndoOfAnAppliedTransferFreesTheKey", anUndoOfAnAppliedTransferFreesTheKey},
	{"AnUndoOfATransferThatWasNotAppliedRemovesItsSource", anUndoOfATransferThatWasNotAppliedRemovesItsSource},
	{"AnUndoThatNamesNoSourceLeavesTheSource", anUndoThatNamesNoSourceLeavesTheSource},
	{"AnUndoAffectsOnlyTheHoldersItNames", anUndoAffectsOnlyTheHoldersItNames},
}

// undo cleans up once. If the claim was never applied, settled depends on what the
// store knows of its own commands; nothing is claimed about it then.
func (e *env) undo(claim store.Ref, from *store.Ref) (settled bool) {
	e.Helper()
	settled, err := e.store.Undo(e.ctx(), claim, from)
	if err != nil {
		e.Fatalf("undo on %q: %v", claim.Key, err)
	}
	return settled
}

// settle repeats undo until it is settled.
func (e *env) settle(claim store.Ref, from *store.Ref) {
	e.Helper()
	for give := time.Now().Add(bound); !e.undo(claim, from); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(give) {
			e.Errorf("undo of an applied claim of %q is not settled after %v", claim.Key, bound)
			return
		}
	}
}

func anUndoRemovesAnAppliedClaim(e *env) {
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

func anUndoOfAClaimThatWasNotAppliedChangesNothing(e *env) {
	c := e.claim(e.key("undone"), long)
	e.undo(c.Ref, nil)
	e.free(c.Key)
	e.hold(c.Key, long)
}

func anUndoOfAnAppliedTransferFreesTheKey(e *env) {
	from := e.hold(e.key("undone"), long)
	to := e.passOn(from.Ref, e.claim(from.Key, long))
	e.undo(to.Ref, &from.Ref)
	e.free(to.Key)
	e.settle(to.Ref, &from.Ref)
}

func anUndoOfATransferThatWasNotAppliedRemovesItsSource(e *env) {
	from := e.hold(e.key("undone"), long)
	to := e.claim(from.Key, long)
	e.undo(to.Ref, &from.Ref)
	e.free(to.Key)
	_, err := e.renew(from.Ref, long)
	e.gone("renewal of the source of the transfer", err)
}

// An Undo without from follows a Resume: its ticket stays valid if the transfer was
// never applied.
func anUndoThatNamesNoSourceLeavesTheSource(e *env) {
	from := e.hold(e.key("resumed"), long)
	to := e.claim(from.Key, long)
	e.unchanged(from.Key, func() { e.undo(to.Ref, nil) })
	if _, err := e.renew(from.Ref, long); err != nil {
		e.Errorf("renewal of the source, which was to stay: %v", err)
	}

	applied := e.passOn(from.Ref, e.claim(from.Key, long))
	e.undo(applied.Ref, nil)
	e.free(applied.Key)
}

func anUndoAffectsOnlyTheHoldersItNames(e *env) {
	h := e.hold(e.key("held"), long)
	old, never := e.claim(h.Key, long), e.claim(h.Key, long)
	e.unchanged(h.Key, func() {
		e.undo(never.Ref, nil)
		e.undo(never.Ref, &old.Ref)
	})
	e.holds(h)
}
