package storetest

import (
	"time"

	"github.com/mongolock/mongolock/store"
)

var wordClaims = []claim{
	{"AReleaseReportsThatSomebodyWaits", aReleaseReportsThatSomebodyWaits},
	{"AWordIsLeftOnlyOnAHeldKey", aWordIsLeftOnlyOnAHeldKey},
	{"AWordExpires", aWordExpires},
	{"AWordIsNeverShortened", aWordIsNeverShortened},
	{"AWordOutlivesTheHolderItWaitsFor", aWordOutlivesTheHolderItWaitsFor},
	{"AWordIsRemovedWithTheRecord", aWordIsRemovedWithTheRecord},
	{"TheHintHeldChangesNoAnswer", theHintHeldChangesNoAnswer},
}

// waitFor leaves a word on a held key.
func (e *env) waitFor(key string, d time.Duration) {
	e.Helper()
	c := e.claim(key, long)
	c.Want = d
	e.refused(c)
}

// wanted checks whether a look at key shows a waiter.
func (e *env) wanted(key string, want bool) {
	e.Helper()
	if status := e.look(key); status.Wanted != want {
		e.Errorf("%q: wanted is %v, should be %v", key, status.Wanted, want)
	}
}

func aReleaseReportsThatSomebodyWaits(e *env) {
	for _, keep := range []time.Duration{0, 2 * long} {
		alone := e.hold(e.key("alone"), long)
		e.refused(e.claim(alone.Key, long)) // and does not wait
		e.wanted(alone.Key, false)
		if wanted, err := e.store.Release(e.ctx(), alone.Ref, keep); wanted || err != nil {
			e.Errorf("release while nobody waits: wanted %v, %v", wanted, err)
		}
		awaited := e.hold(e.key("awaited"), long)
		e.waitFor(awaited.Key, long)
		e.wanted(awaited.Key, true)
		if wanted, err := e.store.Release(e.ctx(), awaited.Ref, keep); !wanted || err != nil {
			e.Errorf("release while somebody waits: wanted %v, %v", wanted, err)
		}
	}
}

func aWordIsLeftOnlyOnAHeldKey(e *env) {
	c := e.claim(e.key("free"), long)
	c.Want = long
	if h := e.granted(c); h.grant.Wanted {
		e.Error("the grant shows its own claim as waiting")
	}
	e.wanted(c.Key, false)
}

func aWordExpires(e *env) {
	h := e.hold(e.key("awaited"), long)
	e.waitFor(h.Key, short)
	time.Sleep(short + e.slack())
	for range e.rounds(0, 20) { // a store that knows its server's clock as an interval may honour a word longer, by a slow trip
		if !e.look(h.Key).Wanted {
			break
		}
		time.Sleep(e.slack())
	}
	e.wanted(h.Key, false)
	if wanted, err := e.store.Release(e.ctx(), h.Ref, 0); wanted || err != nil {
		e.Errorf("release after the word expired: wanted %v, %v", wanted, err)
	}
}

func aWordIsNeverShortened(e *env) {
	h := e.hold(e.key("awaited"), long)
	e.waitFor(h.Key, long)
	e.waitFor(h.Key, short)
	e.refused(e.claim(h.Key, long))
	time.Sleep(short + e.slack())
	e.wanted(h.Key, true)
}

func aWordOutlivesTheHolderItWaitsFor(e *env) {
	h := e.hold(e.key("awaited"), short)
	c := e.claim(h.Key, long)
	c.Want = long
	if _, err := e.try(c); err == nil {
		e.Log("the holder expired before anybody could wait; nothing was shown")
		return
	}
	e.outlive(h)
	next := e.hold(h.Key, long)
	if !next.grant.Wanted {
		e.Error("the grant of a takeover does not show the waiter's word")
	}
	last := e.passOn(next.Ref, e.claim(h.Key, long))
	if !last.grant.Wanted {
		e.Error("the grant of a transfer does not show the waiter's word")
	}
	if _, err := e.renew(last.Ref, long); err != nil {
		e.Fatalf("renewal: %v", err)
	}
	e.wanted(h.Key, true)
	if wanted, err := e.store.Release(e.ctx(), last.Ref, 0); !wanted || err != nil {
		e.Errorf("release: wanted %v, %v", wanted, err)
	}
}

func aWordIsRemovedWithTheRecord(e *env) {
	h := e.hold(e.key("awaited"), long)
	e.waitFor(h.Key, long)
	e.release(h.Ref)
	e.wanted(h.Key, false)
	if next := e.hold(h.Key, long); next.grant.Wanted {
		e.Error("the grant of a new record shows the word of the old record")
	}
}

// theHintHeldChangesNoAnswer: a claim that expects the key to be held is answered like
// any other, whether the key is free, held or expired.
func theHintHeldChangesNoAnswer(e *env) {
	hinted := func(key string) store.Claim {
		c := e.claim(key, long)
		c.Want, c.Held = long, true
		return c
	}
	e.granted(hinted(e.key("free")))

	h := e.hold(e.key("held"), long)
	e.refused(hinted(h.Key))
	e.wanted(h.Key, true)
	if wanted, err := e.store.Release(e.ctx(), h.Ref, 0); !wanted || err != nil {
		e.Errorf("release while somebody waits: wanted %v, %v", wanted, err)
	}
	e.granted(hinted(h.Key))

	out := e.hold(e.key("expired"), short)
	time.Sleep(short + e.slack())
	next := e.granted(hinted(out.Key))
	if next.grant.Token <= out.grant.Token {
		e.Errorf("token %d after %d", next.grant.Token, out.grant.Token)
	}
}
