package storetest

import "crypto/rand"

var breakClaims = []claim{
	{"ABreakTellsTheHolderWhy", aBreakTellsTheHolderWhy},
	{"ABreakAloneDoesNotFreeTheKey", aBreakAloneDoesNotFreeTheKey},
	{"ABreakNowFreesTheKeyAtOnce", aBreakNowFreesTheKeyAtOnce},
	{"ABreakAffectsOnlyTheHolderItNames", aBreakAffectsOnlyTheHolderItNames},
	{"ABreakDoesNotAffectTheNextHolder", aBreakDoesNotAffectTheNextHolder},
	{"AKeptKeyThatIsBrokenIsGoneForItsHolder", aKeptKeyThatIsBrokenIsGoneForItsHolder},
}

func aBreakTellsTheHolderWhy(e *env) {
	h := e.hold(e.key("broken"), long)
	if err := e.store.Break(e.ctx(), h.Ref, "stuck since noon", false); err != nil {
		e.Fatalf("break: %v", err)
	}
	e.unchanged(h.Key, func() {
		_, err := e.renew(h.Ref, 2*long)
		e.broken("renewal", err, "stuck since noon")
	})
	if why := e.holder(h.Key).Broken; why != "stuck since noon" {
		e.Errorf("the status shows the reason %q", why)
	}
}

func aBreakAloneDoesNotFreeTheKey(e *env) {
	h := e.hold(e.key("broken"), long)
	if err := e.store.Break(e.ctx(), h.Ref, "stuck", false); err != nil {
		e.Fatalf("break: %v", err)
	}
	e.holds(h)
	e.refused(e.claim(h.Key, long))
	e.release(h.Ref) // a broken holder may still release
	e.free(h.Key)
}

func aBreakNowFreesTheKeyAtOnce(e *env) {
	h := e.hold(e.key("broken"), long)
	if err := e.store.Break(e.ctx(), h.Ref, "stuck", false); err != nil {
		e.Fatalf("break: %v", err)
	}
	if err := e.store.Break(e.ctx(), h.Ref, "stuck", true); err != nil {
		e.Fatalf("break now: %v", err)
	}
	e.free(h.Key)
	_, err := e.renew(h.Ref, long)
	e.gone("renewal of a removed holder", err)

	unmarked := e.hold(h.Key, long)
	if err := e.store.Break(e.ctx(), unmarked.Ref, "stuck", true); err != nil {
		e.Fatalf("break now of a holder that was not marked: %v", err)
	}
	e.free(h.Key)
}

func aBreakAffectsOnlyTheHolderItNames(e *env) {
	h := e.hold(e.key("held"), long)
	free := e.key("free")
	for _, now := range []bool{false, true} {
		e.unchanged(h.Key, func() {
			other := h.Ref
			other.ID = rand.Text()
			e.gone("break of another ID", e.store.Break(e.ctx(), other, "stuck", now))
			other = h.Ref
			other.Key = free
			e.gone("break on another key", e.store.Break(e.ctx(), other, "stuck", now))
		})
	}
	e.free(free)
	if _, err := e.renew(h.Ref, long); err != nil {
		e.Errorf("renewal: %v", err)
	}
}

func aBreakDoesNotAffectTheNextHolder(e *env) {
	h := e.hold(e.key("broken"), long)
	if err := e.store.Break(e.ctx(), h.Ref, "stuck", false); err != nil {
		e.Fatalf("break: %v", err)
	}
	e.release(h.Ref)
	next := e.hold(h.Key, long)
	e.unchanged(h.Key, func() {
		e.gone("break of a released holder", e.store.Break(e.ctx(), h.Ref, "stuck", true))
	})
	if _, err := e.renew(next.Ref, long); err != nil {
		e.Errorf("renewal of the next holder: %v", err)
	}
}

// Its holder has released it, so there is no lease that a break could end.
func aKeptKeyThatIsBrokenIsGoneForItsHolder(e *env) {
	h := e.hold(e.key("kept"), long)
	e.keep(h, 2*long)
	if err := e.store.Break(e.ctx(), h.Ref, "not needed any more", false); err != nil {
		e.Fatalf("break of a kept key: %v", err)
	}
	_, err := e.renew(h.Ref, 4*long)
	e.gone("renewal of a kept key that was broken", err)
	_, err = e.transfer(h.Ref, e.claim(h.Key, 4*long))
	e.gone("transfer of a kept key that was broken", err)
	e.refused(e.claim(h.Key, long))
	if err := e.store.Break(e.ctx(), h.Ref, "not needed any more", true); err != nil {
		e.Fatalf("break now of a kept key: %v", err)
	}
	e.free(h.Key)
}
