package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var acquireClaims = []claim{
	{"AFreeKeyIsGranted", aFreeKeyIsGranted},
	{"AHeldKeyIsRefusedWithItsStatus", aHeldKeyIsRefusedWithItsStatus},
	{"ARefusedClaimLeavesNoTrace", aRefusedClaimLeavesNoTrace},
	{"KeysDoNotAffectEachOther", keysDoNotAffectEachOther},
	{"OneOfManyClaimsOfANewKeyWins", oneOfManyClaimsOfANewKeyWins},
	{"OneOfManyClaimsOfAnExpiredKeyWins", oneOfManyClaimsOfAnExpiredKeyWins},
	{"TwoContendersNeverHoldTheKeyAtOnce", twoContendersNeverHoldTheKeyAtOnce},
}

func aFreeKeyIsGranted(e *env) {
	h := e.hold(e.key("free"), long)
	e.lasts(h)
	if h.grant.Token <= 0 || h.grant.Since.IsZero() || len(h.grant.Line) != 0 {
		e.Errorf("grant: %+v", h.grant)
	}
	status := e.look(h.Key)
	if status.Key != h.Key || status.Mode != store.Exclusive || len(status.Line) != 0 {
		e.Errorf("status: %+v", status)
	}
	holder := e.only(status)
	if holder.ID != h.ID || holder.Owner != h.Owner || holder.Note != h.Note || holder.Broken != "" || !holder.Since.Equal(h.grant.Since) {
		e.Errorf("holder: %+v\nclaim: %+v", holder, h.Claim)
	}
	// Both times are the store's, so they may be compared. They were read within one
	// call, so they may differ from the TTL by no more than the call took.
	if d := holder.ExpireAt.Sub(holder.Since) - long; d.Abs() > h.replied.Sub(h.sent)+e.slack() {
		e.Errorf("a TTL of %v became %v", long, long+d)
	}
}

// lasts checks that Left is about the TTL, less the time that the call took. takenUntil shows
// that Left is not too long.
func (e *env) lasts(h held) {
	e.Helper()
	least := h.TTL - h.replied.Sub(h.sent) - e.slack() - h.TTL/100
	if h.grant.Left > h.TTL || h.grant.Left < least {
		e.Errorf("a grant for %v has Left %v, want at least %v and at most the TTL", h.TTL, h.grant.Left, least)
	}
}

func aHeldKeyIsRefusedWithItsStatus(e *env) {
	key := e.key("held")
	c := e.claim(key, long)
	c.Owner, c.Note = "host-a/17", "nightly run"
	h := e.granted(c)

	refusal := e.refused(e.claim(key, long))
	if !errors.Is(refusal, store.ErrHeld) {
		e.Error("a HeldError does not match ErrHeld")
	}
	holder := e.only(refusal.Status)
	if refusal.Key != key || refusal.Mode != store.Exclusive ||
		holder.ID != h.ID || holder.Owner != c.Owner || holder.Note != c.Note || !holder.Since.Equal(h.grant.Since) {
		e.Errorf("the refusal does not show this holder: %+v", refusal.Status)
	}
	least := long - time.Since(h.sent) - e.slack()
	if left := refusal.Left(); refusal.Free() || left > long+e.slack() || left < least {
		e.Errorf("the refusal shows %v left of %v", left, long)
	}
}

func aRefusedClaimLeavesNoTrace(e *env) {
	h := e.hold(e.key("held"), long)
	rival := e.claim(h.Key, long)
	e.unchanged(h.Key, func() { e.refused(rival) })
	err := e.end(rival.Ref, 0)
	e.gone("release of a refused claim", err)
	e.release(h.Ref)
	e.free(h.Key)
}

func keysDoNotAffectEachOther(e *env) {
	stem := e.key("key")
	var all []held
	for _, key := range []string{stem, "A" + stem, "a" + stem, stem + " ", " " + stem, stem + "/", stem + ".a", stem + "\x00", stem + "é", stem + "e\u0301"} {
		all = append(all, e.hold(key, long))
	}
	for i, h := range all {
		for _, other := range all[i:] {
			e.holds(other)
		}
		e.release(h.Ref)
		e.free(h.Key)
	}
}

func oneOfManyClaimsOfANewKeyWins(e *env) {
	for range e.rounds(20, 3) {
		e.oneWins(e.key("new"), 20)
	}
}

func oneOfManyClaimsOfAnExpiredKeyWins(e *env) {
	var keys []string
	var last held
	for range e.rounds(20, 3) {
		last = e.hold(e.key("expired"), short)
		keys = append(keys, last.Key)
	}
	e.outlive(last)
	for _, key := range keys {
		e.oneWins(key, 20)
	}
}

// oneWins makes n claims at once. One must be granted, and the others must be refused
// with a status that shows the winner.
func (e *env) oneWins(key string, n int) {
	e.Helper()
	grants, refusals := make([]*held, n), make([]error, n)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		c := e.claim(key, long)
		wg.Go(func() {
			<-start
			if h, err := e.try(c); err != nil {
				refusals[i] = err
			} else {
				grants[i] = &h
			}
		})
	}
	close(start)
	wg.Wait()

	grants = slices.DeleteFunc(grants, func(h *held) bool { return h == nil })
	if len(grants) != 1 {
		e.Errorf("%d of %d claims of %q were granted", len(grants), n, key)
		return
	}
	e.holds(*grants[0])
	for _, err := range refusals {
		if err == nil {
			continue
		}
		var refusal *store.HeldError
		if !errors.As(err, &refusal) {
			e.Errorf("a refused claim got %v, want a *HeldError", err)
		} else if len(refusal.Holders) != 1 || refusal.Holders[0].ID != grants[0].ID {
			e.Errorf("a refused claim was shown %+v, not the winner %s", refusal.Holders, grants[0].ID)
		}
	}
}

func twoContendersNeverHoldTheKeyAtOnce(e *env) {
	key := e.key("contended")
	var mu sync.Mutex // protects inside, token and wrong
	inside := ""
	token := int64(0)
	var wrong []string
	section := func(h held) {
		mu.Lock()
		if inside != "" {
			wrong = append(wrong, fmt.Sprintf("%s was granted the key while %s held it", h.ID, inside))
		}
		if h.grant.Token <= token {
			wrong = append(wrong, fmt.Sprintf("token %d was granted after %d", h.grant.Token, token))
		}
		inside, token = h.ID, h.grant.Token
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		inside = ""
		mu.Unlock()
	}

	var wg sync.WaitGroup
	give := time.Now().Add(bound) // stop then, even if the store grants nothing
	for range e.rounds(8, 4) {
		wg.Go(func() {
			for served := 0; served < e.rounds(20, 4) && time.Now().Before(give); {
				h, err := e.try(e.claim(key, long))
				if err == nil {
					section(h)
					served++
					err = e.end(h.Ref, 0)
				}
				if err != nil && !errors.Is(err, store.ErrHeld) {
					e.Errorf("contending for %q: %v", key, err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	for _, w := range wrong {
		e.Error(w)
	}
}
