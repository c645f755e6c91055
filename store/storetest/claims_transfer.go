package storetest

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var transferClaims = []claim{
	{"ATransferTakesTheHoldersPlace", aTransferTakesTheHoldersPlace},
	{"ATransferStartsANewTTL", aTransferStartsANewTTL},
	{"AKeyIsNeverFreeDuringATransfer", aKeyIsNeverFreeDuringATransfer},
	{"ATransferAffectsOnlyTheHolderItNames", aTransferAffectsOnlyTheHolderItNames},
	{"ATransferFromAReleasedHolderIsRefused", aTransferFromAReleasedHolderIsRefused},
	{"ATransferFromAnExpiredHolderIsRefused", aTransferFromAnExpiredHolderIsRefused},
	{"ATransferFromABrokenHolderIsRefused", aTransferFromABrokenHolderIsRefused},
	{"OneOfManyTransfersWins", oneOfManyTransfersWins},
}

// passOn makes a transfer that must be granted.
func (e *env) passOn(from store.Ref, to store.Claim) held {
	e.Helper()
	h, err := e.transfer(from, to)
	if err != nil {
		e.Fatalf("transfer of %q: %v", to.Key, err)
	}
	return h
}

func aTransferTakesTheHoldersPlace(e *env) {
	from := e.hold(e.key("transferred"), long)
	c := e.claim(from.Key, long)
	c.Owner, c.Note = "the next", "another note"
	to := e.passOn(from.Ref, c)
	e.lasts(to)
	e.holds(to)
	if to.grant.Token <= from.grant.Token {
		e.Errorf("token %d after %d", to.grant.Token, from.grant.Token)
	}
	status := e.look(to.Key)
	holder := e.only(status)
	if status.Mode != store.Exclusive || holder.Owner != c.Owner || holder.Note != c.Note || !holder.Since.Equal(to.grant.Since) {
		e.Errorf("the new holder: %+v", status)
	}
	e.unchanged(to.Key, func() {
		_, err := e.renew(from.Ref, 2*long)
		e.gone("renewal of the old holder", err)
		err = e.end(from.Ref, 0)
		e.gone("release of the old holder", err)
		_, err = e.transfer(from.Ref, e.claim(to.Key, 2*long))
		e.gone("a second transfer", err)
	})
}

func aTransferStartsANewTTL(e *env) {
	from := e.hold(e.key("transferred"), long)
	to := e.passOn(from.Ref, e.claim(from.Key, 2*short)) // shorter than what was left
	e.lasts(to)
	e.takenUntil(to.Key, to.honoured(), to.replied.Add(to.TTL+e.slack()))
}

func aKeyIsNeverFreeDuringATransfer(e *env) {
	h := e.hold(e.key("transferred"), long)
	key := h.Key
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				if _, err := e.try(e.claim(key, long)); err == nil {
					e.Errorf("%q was granted to another during a transfer", key)
					return
				}
				if all, err := e.store.Look(e.ctx(), []string{key}); err == nil && len(all) == 1 && all[0].Free() {
					e.Errorf("%q was seen free during a transfer", key)
					return
				}
				// Virtual time passes only while all goroutines wait.
				select {
				case <-done:
					return
				case <-time.After(100 * time.Microsecond):
				}
			}
		})
	}
	for i := range e.rounds(500, 20) {
		if i%10 == 0 {
			time.Sleep(100 * time.Microsecond) // so that all continue at the same moment
		}
		next, err := e.transfer(h.Ref, e.claim(key, long))
		if err != nil {
			e.Errorf("transfer: %v", err)
			break
		}
		h = next
	}
	close(done)
	wg.Wait()
}

func aTransferAffectsOnlyTheHolderItNames(e *env) {
	h := e.hold(e.key("held"), long)
	free := e.key("free")
	e.unchanged(h.Key, func() {
		_, err := e.transfer(store.Ref{Key: h.Key, ID: rand.Text(), Mode: store.Exclusive}, e.claim(h.Key, 2*long))
		e.gone("transfer from another ID", err)
		_, err = e.transfer(store.Ref{Key: free, ID: h.ID, Mode: store.Exclusive}, e.claim(free, long))
		e.gone("transfer on another key", err)
	})
	e.free(free)
}

func aTransferFromAReleasedHolderIsRefused(e *env) {
	h := e.hold(e.key("released"), long)
	e.release(h.Ref)
	_, err := e.transfer(h.Ref, e.claim(h.Key, long))
	e.gone("transfer from a released holder", err)
	e.free(h.Key)
}

func aTransferFromAnExpiredHolderIsRefused(e *env) {
	e.refusesTheExpired("transfer from an expired holder", func(h held) error {
		_, err := e.transfer(h.Ref, e.claim(h.Key, long))
		return err
	})
}

func aTransferFromABrokenHolderIsRefused(e *env) {
	h := e.hold(e.key("broken"), long)
	if err := e.store.Break(e.ctx(), h.Ref, "stuck", false); err != nil {
		e.Fatalf("break: %v", err)
	}
	e.unchanged(h.Key, func() {
		_, err := e.transfer(h.Ref, e.claim(h.Key, long))
		e.broken("transfer from a broken holder", err, "stuck")
	})
}

func oneOfManyTransfersWins(e *env) {
	for range e.rounds(20, 3) {
		from := e.hold(e.key("transferred"), long)
		var wg sync.WaitGroup
		winners := make(chan held, 10)
		for range cap(winners) {
			c := e.claim(from.Key, long)
			wg.Go(func() {
				if h, err := e.transfer(from.Ref, c); err == nil {
					winners <- h
				} else if !errors.Is(err, store.ErrGone) {
					e.Errorf("a refused transfer got %v, want ErrGone", err)
				}
			})
		}
		wg.Wait()
		if len(winners) != 1 {
			e.Errorf("%d of %d transfers from one holder were granted", len(winners), cap(winners))
			continue
		}
		e.holds(<-winners)
	}
}
