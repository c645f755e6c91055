package storetest

import (
	"crypto/rand"
	"time"

	"github.com/mongolock/mongolock/store"
)

var renewClaims = []claim{
	{"ARenewalRestartsTheTTL", aRenewalRestartsTheTTL},
	{"ARenewalChangesOnlyTheExpiry", aRenewalChangesOnlyTheExpiry},
	{"ARenewalNeverShortensTheExpiry", aRenewalNeverShortensTheExpiry},
	{"ARenewalNeverCreatesAHolder", aRenewalNeverCreatesAHolder},
	{"ARenewalNeverRevivesAnExpiredHolder", aRenewalNeverRevivesAnExpiredHolder},
	{"ARenewalAffectsOnlyTheHolderItNames", aRenewalAffectsOnlyTheHolderItNames},
	{"ARenewalAfterAReleaseAnswersErrGone", aRenewalAfterAReleaseAnswersErrGone},
	{"ABatchIsAnsweredInItsOrder", aBatchIsAnsweredInItsOrder},
	{"ABatchCanBeEmptyOrFull", aBatchCanBeEmptyOrFull},
}

func aRenewalRestartsTheTTL(e *env) {
	// The renewal is sent half-way through the TTL. If the machine pauses for longer than
	// the rest of it, nothing is shown, and the next round tries again.
	for range 5 {
		h := e.hold(e.key("renewed"), 2*short)
		e.sleepUntil(h.sent.Add(short))
		sent := time.Now()
		left, err := e.renew(h.Ref, 2*short)
		replied := time.Now()
		if err != nil && replied.After(h.honoured()) {
			continue
		}
		if err != nil {
			e.Fatalf("renewal: %v", err)
		}
		renewed := held{Claim: h.Claim, grant: store.Grant{Left: left}, sent: sent, replied: replied}
		e.lasts(renewed)
		e.holds(h)
		e.takenUntil(h.Key, renewed.honoured(), replied.Add(2*short+e.slack()))
		return
	}
	e.Error("five holders expired before a renewal, sent half-way, reached the store")
}

func aRenewalChangesOnlyTheExpiry(e *env) {
	h := e.hold(e.key("renewed"), long)
	before := e.holder(h.Key)
	if _, err := e.renew(h.Ref, 2*long); err != nil {
		e.Fatalf("renewal: %v", err)
	}
	after := e.holder(h.Key)
	if d := after.ExpireAt.Sub(before.ExpireAt); d < long-e.slack() {
		e.Errorf("a renewal for %v more moved the expiry by %v", long, d)
	}
	after.ExpireAt = before.ExpireAt
	if !same(store.Status{Holders: []store.Holder{before}}, store.Status{Holders: []store.Holder{after}}) {
		e.Errorf("the renewal changed more than the expiry:\n%+v to\n%+v", before, after)
	}
}

func aRenewalNeverShortensTheExpiry(e *env) {
	h := e.hold(e.key("renewed"), long)
	e.unchanged(h.Key, func() {
		if left, err := e.renew(h.Ref, short); err != nil || left <= 0 {
			e.Errorf("renewal: %v left, %v", left, err)
		}
	})
}

func aRenewalNeverCreatesAHolder(e *env) {
	c := e.claim(e.key("never held"), long)
	_, err := e.renew(c.Ref, long)
	e.gone("renewal of an ID that never held the key", err)
	e.free(c.Key)
}

func aRenewalNeverRevivesAnExpiredHolder(e *env) {
	h := e.refusesTheExpired("renewal of an expired holder", func(h held) error {
		_, err := e.renew(h.Ref, long)
		return err
	})
	if status := e.look(h.Key); !status.Free() {
		e.Errorf("the expired holder is live again: %+v", status)
	}
	e.hold(h.Key, long)
}

// refusesTheExpired lets a holder run out and checks that do is refused and changes nothing. A
// store in real time may be unable to tell for a moment which holders have run out, for
// instance after a slow command. Then no other holder has the key, so no harm is done. That
// must be rare.
func (e *env) refusesTheExpired(what string, do func(held) error) (h held) {
	e.Helper()
	for tries := 1; ; tries++ {
		h = e.hold(e.key("expired"), short)
		e.outlive(h)
		before := e.look(h.Key)
		err := do(h)
		if err == nil && e.mode == Real && tries < 10 {
			continue
		}
		e.gone(what, err)
		after := e.look(h.Key)
		after.Now = before.Now
		if !same(before, after) {
			e.Errorf("%s: %q was changed\nfrom %+v\nto   %+v", what, h.Key, before, after)
		}
		return h
	}
}

func aRenewalAffectsOnlyTheHolderItNames(e *env) {
	h := e.hold(e.key("held"), long)
	elsewhere := e.key("another key")
	e.unchanged(h.Key, func() {
		_, err := e.renew(store.Ref{Key: h.Key, ID: rand.Text(), Mode: store.Exclusive}, 2*long)
		e.gone("renewal of another ID", err)
		_, err = e.renew(store.Ref{Key: elsewhere, ID: h.ID, Mode: store.Exclusive}, 2*long)
		e.gone("renewal of another key", err)
	})
	e.free(elsewhere)
}

func aRenewalAfterAReleaseAnswersErrGone(e *env) {
	h := e.hold(e.key("released"), long)
	e.release(h.Ref)
	_, err := e.renew(h.Ref, long)
	e.gone("renewal after a release", err)
	e.free(h.Key)

	next := e.hold(h.Key, long)
	e.unchanged(h.Key, func() {
		_, err := e.renew(h.Ref, 2*long)
		e.gone("renewal after a release, while another holds the key", err)
	})
	e.holds(next)
}

func aBatchIsAnsweredInItsOrder(e *env) {
	first, broken, last := e.hold(e.key("first"), long), e.hold(e.key("broken"), long), e.hold(e.key("last"), long)
	released := e.hold(e.key("released"), long)
	e.release(released.Ref)
	if err := e.store.Break(e.ctx(), broken.Ref, "why not", false); err != nil {
		e.Fatalf("break: %v", err)
	}
	taken := e.claim(first.Key, long) // the same key as another entry

	answers := e.store.Renew(e.ctx(), []store.Renewal{
		{Ref: released.Ref, TTL: 2 * long}, {Ref: first.Ref, TTL: 2 * long}, {Ref: taken.Ref, TTL: 2 * long},
		{Ref: broken.Ref, TTL: 2 * long}, {Ref: last.Ref, TTL: 3 * long},
	})
	if len(answers) != 5 {
		e.Fatalf("5 renewals got %d answers", len(answers))
	}
	e.gone("the released holder", answers[0].Err)
	e.gone("an ID that does not hold the key", answers[2].Err)
	e.broken("the broken holder", answers[3].Err, "why not")
	for i, ttl := range map[int]time.Duration{1: 2 * long, 4: 3 * long} {
		if a := answers[i]; a.Err != nil || a.Left > ttl || a.Left < ttl/2 {
			e.Errorf("entry %d, for %v: %+v", i, ttl, a)
		}
	}
	for key, least := range map[string]time.Duration{first.Key: long, last.Key: 2 * long} {
		if left := e.look(key).Left(); left < least {
			e.Errorf("%q has only %v left", key, left)
		}
	}
}

func aBatchCanBeEmptyOrFull(e *env) {
	if answers := e.store.Renew(e.ctx(), nil); len(answers) != 0 {
		e.Errorf("an empty batch got %d answers", len(answers))
	}
	const full = 1000
	batch := make([]store.Renewal, full)
	mine := map[int]held{0: {}, 499: {}, full - 1: {}}
	stem := e.key("batch")
	for i := range batch {
		c := e.claim(stem+rand.Text(), long)
		if _, ok := mine[i]; ok {
			mine[i] = e.granted(c)
		}
		batch[i] = store.Renewal{Ref: c.Ref, TTL: 2 * long}
	}
	answers := e.store.Renew(e.ctx(), batch)
	if len(answers) != full {
		e.Fatalf("%d renewals got %d answers", full, len(answers))
	}
	for i, a := range answers {
		if _, ok := mine[i]; !ok {
			e.gone("renewal of an ID that never held its key", a.Err)
		} else if a.Err != nil || a.Left < long {
			e.Errorf("entry %d: %+v", i, a)
		}
	}
}
