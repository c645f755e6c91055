package storetest

import (
	"context"
	"errors"

	"github.com/mongolock/mongolock/store"
)

var limitClaims = []claim{
	{"TheNumberThatWasSetCounts", theNumberThatWasSetCounts},
	{"ALowerNumberEndsNoHolder", aLowerNumberEndsNoHolder},
	{"TheNumberOutlastsItsHolders", theNumberOutlastsItsHolders},
	{"TheNumberIsNoMismatch", theNumberIsNoMismatch},
	{"AClaimOfMoreThanTheNumberIsPassed", aClaimOfMoreThanTheNumberIsPassed},
	{"AsManyAreOfferedAsTheNumberSays", asManyAreOfferedAsTheNumberSays},
	{"ContendersNeverHoldMoreThanTheNumber", contendersNeverHoldMoreThanTheNumber},
	{"ANumberIsNotSetAfterItsContextEnded", aNumberIsNotSetAfterItsContextEnded},
}

// setLimit sets how many permits a key has.
func (e *env) setLimit(key string, n int) store.Status {
	e.Helper()
	setter, _ := store.As[store.LimitSetter](e.store)
	status, err := setter.SetLimit(e.ctx(), key, n)
	if err != nil || status.Key != key || status.Set != n {
		e.Fatalf("setting %d permits of %q: %+v, %v", n, key, status, err)
	}
	if n > 0 {
		e.Cleanup(func() { _, _ = setter.SetLimit(e.ctx(), key, 0) })
	}
	return status
}

func theNumberThatWasSetCounts(e *env) {
	key := e.key("set")
	e.setLimit(key, 1)
	all := []held{e.granted(e.permit(key, 3, long))}
	if refusal := e.refused(e.permit(key, 3, long)); refusal.Set != 1 || refusal.Limit != 3 {
		e.Errorf("a claim of 3 permits, of which 1 was set, is shown %+v", refusal.Status)
	}
	e.setLimit(key, 5)
	for range 3 {
		all = append(all, e.granted(e.permit(key, 3, long)))
	}
	e.refused(e.weighing(key, 2, 3, long))
	all = append(all, e.granted(e.permit(key, 3, long)))
	e.refused(e.permit(key, 3, long))
	e.heldBy(key, all...)

	e.setLimit(key, 0)
	for _, h := range all[:3] {
		e.refused(e.permit(key, 3, long))
		e.release(h.Ref)
	}
	e.granted(e.permit(key, 3, long))
	e.refused(e.permit(key, 3, long))
}

func aLowerNumberEndsNoHolder(e *env) {
	key := e.key("set")
	var all []held
	for range 3 {
		all = append(all, e.granted(e.permit(key, 3, long)))
	}
	e.setLimit(key, 1)
	e.heldBy(key, all...)
	for _, h := range all {
		if _, err := e.renew(h.Ref, long); err != nil {
			e.Errorf("renewal above the number: %v", err)
		}
	}
	for len(all) > 0 {
		e.refused(e.permit(key, 3, long))
		e.release(all[0].Ref)
		all = all[1:]
	}
	e.granted(e.permit(key, 3, long))
	e.refused(e.permit(key, 3, long))
}

func theNumberOutlastsItsHolders(e *env) {
	key := e.key("set")
	e.setLimit(key, 1)
	e.lists(key, key)
	for _, c := range []store.Claim{e.permit(key, 3, long), e.reader(key, long), e.claim(key, long)} {
		h := e.granted(c)
		if s := e.setLimit(key, 1); len(s.Holders) != 1 || s.Mode != c.Mode {
			e.Errorf("a number set while a holder in mode %s is there shows %+v", c.Mode, s)
		}
		if c.Mode == store.Exclusive {
			e.refused(e.permit(key, 3, long))
		}
		e.lists(key, key)
		if h.Mode == store.Exclusive {
			waiter := e.waits(e.claim(key, long))
			e.release(h.Ref)
			e.leave(waiter, false)
		} else {
			e.releaseMany(store.Ending{Ref: h.Ref}, store.Ending{Ref: e.hold(e.key("another"), long).Ref})
		}
		e.free(key)
		if set := e.look(key).Set; set != 1 {
			e.Errorf("1 permit was set, and after a release of a holder in mode %s there are %d", c.Mode, set)
		}
	}
	dies := e.granted(e.permit(key, 2, short))
	e.outlive(dies)
	e.granted(e.permit(key, 3, long))
	e.refused(e.permit(key, 3, long))
	for _, s := range e.list(key) {
		if s.Set != 1 || len(s.Holders) == 0 {
			e.Errorf("1 permit was set, and the list shows %+v", s)
		}
	}
	other := e.key("set")
	e.setLimit(other, 2)
	e.setLimit(other, 0)
	e.lists(other)
}

func theNumberIsNoMismatch(e *env) {
	key := e.key("set")
	e.setLimit(key, 2)
	e.granted(e.permit(key, 3, long))
	e.refused(e.weighing(key, 3, 3, long))
	for _, c := range []store.Claim{e.permit(key, 2, long), e.permit(key, 4, long), e.weighing(key, 4, 3, long)} {
		if _, err := e.try(e.placed(c)); !errors.Is(err, store.ErrModeMismatch) {
			e.Errorf("%d of %d permits, where 3 are in use and 2 are set: %v", max(1, c.Weight), c.Limit, err)
		}
	}
}

func aClaimOfMoreThanTheNumberIsPassed(e *env) {
	key := e.key("set")
	e.setLimit(key, 2)
	e.refused(e.weighing(key, 3, 4, long))
	e.free(key)
	heavy := e.waits(e.weighing(key, 3, 4, long)) // though nobody holds the key
	first := e.granted(e.permit(key, 4, long))
	second := e.granted(e.permit(key, 4, long))
	third := e.waits(e.permit(key, 4, long))
	e.line(key, heavy, third)
	e.ended("a permit", e.end(first.Ref, 0), 1, third)
	third.Note = "the next"
	last := e.granted(e.anew(third))
	e.waits(heavy)
	e.release(second.Ref)
	e.release(last.Ref)
	writer := e.waits(heavy)
	alone := e.granted(e.claim(key, long))
	e.release(alone.Ref)
	e.line(key, writer)

	status := e.setLimit(key, 3)
	if line := status.Waiting("", ""); len(line) != 1 || status.Offered(line) != 1 {
		e.Errorf("once enough permits are set, the first in line is not offered any: %+v", status)
	}
	e.refused(e.permit(key, 4, long))
	e.granted(e.anew(heavy))
	e.refused(e.permit(key, 4, long))
}

func asManyAreOfferedAsTheNumberSays(e *env) {
	key := e.key("set")
	var all []held
	for range 3 {
		all = append(all, e.granted(e.permit(key, 3, long)))
	}
	var line []store.Claim
	for range 4 {
		line = append(line, e.waits(e.permit(key, 3, long)))
	}
	offers := func(what string, s store.Status, want int) {
		e.Helper()
		if got := s.Offered(s.Waiting("", "")); got != want {
			e.Errorf("%s: %d of those in line are offered a permit, want %d: %+v", what, got, want, s)
		}
	}
	offers("after 2 were set", e.setLimit(key, 2), 0)
	answer := e.end(all[0].Ref, 0)
	e.ended("a permit", answer, 2, line...)
	if answer.Set != 2 {
		e.Errorf("2 permits are set, and a release shows %d", answer.Set)
	}
	for _, c := range line {
		e.waits(c)
	}
	offers("look", e.look(key), 0)
	offers("after 5 were set", e.setLimit(key, 5), 3)
	offers("leave", e.leave(e.waits(e.permit(key, 3, long)), false), 3)
	e.waits(line[3])
	for _, c := range line[:3] {
		e.granted(e.anew(c))
	}
	e.waits(line[3])
	for _, answer := range e.releaseMany(store.Ending{Ref: all[1].Ref}, store.Ending{Ref: all[2].Ref}) {
		if answer.Err != nil || answer.Set != 5 {
			e.Errorf("5 permits are set, and a release in a bulk shows %d, %v", answer.Set, answer.Err)
		}
	}
	e.granted(e.anew(line[3]))
}

func contendersNeverHoldMoreThanTheNumber(e *env) {
	key := e.key("set")
	e.setLimit(key, 2)
	var kinds []func() store.Claim
	for i := range e.rounds(8, 6) {
		kinds = append(kinds, func() store.Claim { return e.weighing(key, 1+i%2, 4, long) })
	}
	e.contendFor(2, kinds...)
}

func aNumberIsNotSetAfterItsContextEnded(e *env) {
	key := e.key("set")
	ctx, cancel := context.WithCancel(e.ctx())
	cancel()
	setter, _ := store.As[store.LimitSetter](e.store)
	_, network := e.store.(*Faulty) // may leave it unknown
	if _, err := setter.SetLimit(ctx, key, 1); err == nil || !network && !errors.Is(err, store.ErrNotApplied) {
		e.Errorf("setting a number after the context ended: got %v, want ErrNotApplied", err)
	}
	if s := e.look(key); s.Set != 0 {
		e.Errorf("it was set: %+v", s)
	}
}
