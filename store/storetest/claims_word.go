package storetest

import (
	"time"

	"github.com/mongolock/mongolock/store"
)

var wordClaims = []claim{
	{"AReleaseTellsThatSomebodyWaits", aReleaseTellsThatSomebodyWaits},
	{"AWordIsLeftOnlyWhereTheKeyIsHeld", aWordIsLeftOnlyWhereTheKeyIsHeld},
	{"AWordRunsOut", aWordRunsOut},
	{"AWordIsNeverShortened", aWordIsNeverShortened},
	{"AWordOutlivesItsHolder", aWordOutlivesItsHolder},
	{"AWordGoesWithTheRecord", aWordGoesWithTheRecord},
	{"AHintChangesNoAnswer", aHintChangesNoAnswer},
}

// waitFor leaves word on a held key.
func (e *env) waitFor(key string, d time.Duration) {
	e.Helper()
	c := e.claim(key, long)
	c.Want = d
	e.refused(c)
}

// wanted checks what a look at key says of those who wait.
func (e *env) wanted(key string, want bool) {
	e.Helper()
	if status := e.look(key); status.Wanted != want {
		e.Errorf("%q: wanted is %v, should be %v", key, status.Wanted, want)
	}
}

func aReleaseTellsThatSomebodyWaits(e *env) {
	for _, keep := range []time.Duration{0, 2 * long} {
		alone := e.hold(e.key("alone"), long)
		e.refused(e.claim(alone.Key, long)) // who does not wait
		e.wanted(alone.Key, false)
		if wanted, err := e.store.Release(e.ctx(), alone.Ref, keep); wanted || err != nil {
			e.Errorf("release with nobody waiting: wanted %v, %v", wanted, err)
		}
		awaited := e.hold(e.key("awaited"), long)
		e.waitFor(awaited.Key, long)
		e.wanted(awaited.Key, true)
		if wanted, err := e.store.Release(e.ctx(), awaited.Ref, keep); !wanted || err != nil {
			e.Errorf("release with somebody waiting: wanted %v, %v", wanted, err)
		}
	}
}

func aWordIsLeftOnlyWhereTheKeyIsHeld(e *env) {
	c := e.claim(e.key("free"), long)
	c.Want = long
	if h := e.granted(c); h.grant.Wanted {
		e.Error("a grant says that its own claim waits")
	}
	e.wanted(c.Key, false)
}

func aWordRunsOut(e *env) {
	h := e.hold(e.key("awaited"), long)
	e.waitFor(h.Key, short)
	time.Sleep(short + e.mode.slack())
	for range e.rounds(0, 20) { // a store that knows its server's clock as an interval may honour a word longer, by a slow trip
		if !e.look(h.Key).Wanted {
			break
		}
		time.Sleep(e.mode.slack())
	}
	e.wanted(h.Key, false)
	if wanted, err := e.store.Release(e.ctx(), h.Ref, 0); wanted || err != nil {
		e.Errorf("release after the word ran out: wanted %v, %v", wanted, err)
	}
}

func aWordIsNeverShortened(e *env) {
	h := e.hold(e.key("awaited"), long)
	e.waitFor(h.Key, long)
	e.waitFor(h.Key, short)
	e.refused(e.claim(h.Key, long))
	time.Sleep(short + e.mode.slack())
	e.wanted(h.Key, true)
}

func aWordOutlivesItsHolder(e *env) {
	h := e.hold(e.key("awaited"), short)
	c := e.claim(h.Key, long)
	c.Want = long
	if _, err := e.try(c); err == nil {
		e.Log("the holder ran out before anybody could wait; nothing shown")
		return
	}
	e.outlive(h)
	next := e.hold(h.Key, long)
	if !next.grant.Wanted {
		e.Error("a takeover does not see the word of who waits")
	}
	last := e.passOn(next.Ref, e.claim(h.Key, long))
	if !last.grant.Wanted {
		e.Error("a transfer does not see the word of who waits")
	}
	if _, err := e.renew(last.Ref, long); err != nil {
		e.Fatalf("renewal: %v", err)
	}
	e.wanted(h.Key, true)
	if wanted, err := e.store.Release(e.ctx(), last.Ref, 0); !wanted || err != nil {
		e.Errorf("release: wanted %v, %v", wanted, err)
	}
}

func aWordGoesWithTheRecord(e *env) {
	h := e.hold(e.key("awaited"), long)
	e.waitFor(h.Key, long)
	e.release(h.Ref)
	e.wanted(h.Key, false)
	if next := e.hold(h.Key, long); next.grant.Wanted {
		e.Error("a grant of a new record sees the word on the old one")
	}
}

// aHintChangesNoAnswer: a claim that expects the key to be held is answered as any
// other, whatever there is.
func aHintChangesNoAnswer(e *env) {
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
		e.Errorf("release with somebody waiting: wanted %v, %v", wanted, err)
	}
	e.granted(hinted(h.Key))

	out := e.hold(e.key("run out"), short)
	time.Sleep(short + e.mode.slack())
	next := e.granted(hinted(out.Key))
	if next.grant.Token <= out.grant.Token {
		e.Errorf("token %d after %d", next.grant.Token, out.grant.Token)
	}
}
