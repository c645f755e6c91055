package storetest

import (
	"errors"
	"time"

	"github.com/mongolock/mongolock/store"
)

var togetherClaims = []claim{
	{"ABulkOfClaimsAnswersEachInItsOrder", aBulkOfClaimsAnswersEachInItsOrder},
	{"ABulkOfClaimsLeavesWhatOthersHold", aBulkOfClaimsLeavesWhatOthersHold},
	{"EachGrantOfABulkIsALeaseByItself", eachGrantOfABulkIsALeaseByItself},
	{"AnUndoOfOneClaimOfABulkLeavesTheOthers", anUndoOfOneClaimOfABulkLeavesTheOthers},
	{"TokensIncreaseAcrossBulks", tokensIncreaseAcrossBulks},
	{"ABulkOfClaimsCanBeEmptyOrFull", aBulkOfClaimsCanBeEmptyOrFull},
}

var foreignTogetherClaims = []claim{
	{"ABulkOfClaimsNeverChangesForeignRecords", aBulkOfClaimsNeverChangesForeignRecords},
}

// claimMany makes claims in one bulk. A store that refuses bulks ends the claim.
func (e *env) claimMany(batch ...store.Claim) (all []held, answers []store.Claimed) {
	e.Helper()
	bulk, _ := store.As[store.BulkAcquirer](e.store)
	sent := time.Now()
	answers = bulk.AcquireMany(e.ctx(), batch)
	if len(answers) != len(batch) {
		e.Fatalf("a bulk of %d claims got %d answers", len(batch), len(answers))
	}
	for i, c := range batch {
		all = append(all, held{Claim: c, sent: sent, replied: time.Now(), grant: answers[i].Grant})
		e.Cleanup(func() { e.end(c.Ref, 0) })
	}
	if len(answers) > 0 && errors.Is(answers[0].Err, errors.ErrUnsupported) && store.IsCertain(answers[0].Err) {
		for _, c := range batch {
			if h := e.look(c.Key).Holders; len(h) > 0 && h[0].ID == c.ID {
				e.Errorf("a bulk that is refused left a holder of %q", c.Key)
			}
		}
		e.Skip("the store refuses bulks of claims: ", answers[0].Err)
	}
	return all, answers
}

// holdMany claims free keys in one bulk.
func (e *env) holdMany(batch ...store.Claim) []held {
	e.Helper()
	all, answers := e.claimMany(batch...)
	for i, a := range answers {
		if a.Err != nil {
			e.Fatalf("claim of %q, which is free, in a bulk: %v", batch[i].Key, a.Err)
		}
	}
	return all
}

func aBulkOfClaimsAnswersEachInItsOrder(e *env) {
	taken := e.hold(e.key("m taken"), long)
	batch := []store.Claim{e.claim(e.key("z free"), long), e.claim(taken.Key, long), e.claim(e.key("a free"), long)}
	all, answers := e.claimMany(batch...)
	for _, i := range []int{0, 2} {
		a := answers[i]
		if a.Err != nil {
			e.Fatalf("claim of %q, which is free, in a bulk: %v", batch[i].Key, a.Err)
		}
		if a.Left <= 0 || a.Left > long || len(a.Line) != 0 {
			e.Errorf("the grant of a bulk: %+v", a.Grant)
		}
		e.holds(all[i])
		if h := e.holder(batch[i].Key); h.Owner != batch[i].Owner || h.Note != batch[i].Note || h.ExpireAt.Sub(h.Since) < long {
			e.Errorf("the holder of a bulk: %+v", h)
		}
	}
	refusal := e.refusal(batch[1], answers[1].Err)
	if refusal.Key != taken.Key || len(refusal.Holders) > 0 && e.only(refusal.Status).ID != taken.ID {
		e.Errorf("the refusal shows %+v", refusal.Status)
	}
	e.holds(taken)
}

func aBulkOfClaimsLeavesWhatOthersHold(e *env) {
	a, b := e.hold(e.key("held"), long), e.hold(e.key("held too"), long)
	e.waits(e.claim(b.Key, long))
	offered := e.hold(e.key("offered"), long)
	e.waits(e.claim(offered.Key, long))
	e.release(offered.Ref)
	keys := []string{a.Key, b.Key, offered.Key}
	for _, key := range keys {
		e.unchanged(key, func() {
			_, answers := e.claimMany(e.claim(key, 2*long), e.claim(e.key("free"), long))
			e.refusal(e.claim(key, long), answers[0].Err)
		})
	}
}

func eachGrantOfABulkIsALeaseByItself(e *env) {
	all := e.holdMany(e.claim(e.key("one"), long), e.claim(e.key("two"), long), e.claim(e.key("three"), long))
	e.refused(e.claim(all[1].Key, long))
	if _, err := e.renew(all[0].Ref, 2*long); err != nil {
		e.Errorf("renewal after a bulk: %v", err)
	}
	e.release(all[0].Ref)
	e.free(all[0].Key)
	next, err := e.transfer(all[1].Ref, e.claim(all[1].Key, long))
	if err != nil {
		e.Fatalf("transfer after a bulk: %v", err)
	}
	if next.grant.Token <= all[1].grant.Token {
		e.Errorf("token %d of a transfer after %d of a bulk", next.grant.Token, all[1].grant.Token)
	}
	e.holds(next)
	e.holds(all[2])
}

func anUndoOfOneClaimOfABulkLeavesTheOthers(e *env) {
	all := e.holdMany(e.claim(e.key("stays"), long), e.claim(e.key("undone"), long), e.claim(e.key("stays too"), long))
	e.undo(all[1].Ref, nil)
	e.free(all[1].Key)
	e.holds(all[0])
	e.holds(all[2])
}

func tokensIncreaseAcrossBulks(e *env) {
	key, other := e.key("token"), e.key("other")
	var highest tokens
	for i := range e.rounds(60, 12) {
		h := e.hold(key, long)
		if i%2 == 0 {
			e.release(h.Ref)
			both := e.holdMany(e.claim(other, long), e.claim(key, long))
			e.release(both[0].Ref)
			h = both[1]
		}
		highest.add(e, h)
		e.release(h.Ref)
	}
}

func aBulkOfClaimsCanBeEmptyOrFull(e *env) {
	e.claimMany()
	var batch []store.Claim
	for range e.rounds(1000, 120) {
		batch = append(batch, e.claim(e.key("one of many"), long))
	}
	for _, h := range e.holdMany(batch...) {
		e.holds(h)
	}
}

func aBulkOfClaimsNeverChangesForeignRecords(e *env) {
	for range shapes {
		foreign, free := e.key("foreign"), e.claim(e.key("free"), long)
		intact := e.foreign(foreign)
		all, answers := e.claimMany(e.claim(foreign, long), free)
		if err := answers[0].Err; !errors.Is(err, store.ErrForeign) && !errors.Is(err, store.ErrHeld) {
			e.Errorf("claim of a foreign record in a bulk: %v, want ErrForeign or a *HeldError", err)
		}
		if answers[1].Err != nil {
			e.Fatalf("claim beside a foreign record: %v", answers[1].Err)
		}
		e.holds(all[1])
		if err := intact(); err != nil {
			e.Errorf("the foreign record was changed: %v", err)
		}
	}
}
