package storetest

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/mongolock/mongolock/store"
)

var releaseClaims = []claim{
	{"AReleaseFreesTheKeyAtOnce", aReleaseFreesTheKeyAtOnce},
	{"AReleaseAffectsOnlyTheHolderItNames", aReleaseAffectsOnlyTheHolderItNames},
	{"ASecondReleaseAnswersErrGone", aSecondReleaseAnswersErrGone},
	{"AReleaseCanKeepTheKeyForLongerThanItsTTL", aReleaseCanKeepTheKeyForLongerThanItsTTL},
	{"AReleaseCanKeepTheKeyForLessThanItsTTL", aReleaseCanKeepTheKeyForLessThanItsTTL},
	{"AKeptKeyIsFreeOnceItsTimeIsOver", aKeptKeyIsFreeOnceItsTimeIsOver},
	{"AKeptKeyCannotBeRenewedOrTransferred", aKeptKeyCannotBeRenewedOrTransferred},
	{"AKeptKeyIsShownAsReleased", aKeptKeyIsShownAsReleased},
}

func aReleaseFreesTheKeyAtOnce(e *env) {
	key := e.key("released")
	for range 10 {
		h := e.hold(key, long)
		e.release(h.Ref)
		e.free(key)
	}
}

func aReleaseAffectsOnlyTheHolderItNames(e *env) {
	h := e.hold(e.key("held"), long)
	other := e.hold(e.key("another key"), long)
	for what, r := range map[string]store.Ref{
		"another ID":  {Key: h.Key, ID: rand.Text(), Mode: store.Exclusive},
		"another key": {Key: other.Key, ID: h.ID, Mode: store.Exclusive},
		"a free key":  {Key: e.key("free"), ID: h.ID, Mode: store.Exclusive},
	} {
		for _, keep := range []time.Duration{0, short, 2 * long} {
			e.unchanged(h.Key, func() {
				e.unchanged(other.Key, func() {
					e.gone("release of "+what, e.end(r, keep))
				})
			})
		}
	}
}

func aSecondReleaseAnswersErrGone(e *env) {
	h := e.hold(e.key("released"), long)
	e.release(h.Ref)
	err := e.end(h.Ref, 0)
	e.gone("a second release", err)

	next := e.hold(h.Key, long)
	e.unchanged(h.Key, func() {
		err := e.end(h.Ref, 0)
		e.gone("a third release, while another holds the key", err)
	})
	e.holds(next)
}

// keep releases h and returns between which times its key becomes free: by the
// caller's clock this is known only to within the time that the grant took.
func (e *env) keep(h held, d time.Duration) (promised, free time.Time) {
	e.Helper()
	if err := e.end(h.Ref, d); err != nil {
		e.Fatalf("release, kept for %v: %v", d, err)
	}
	return h.sent.Add(d), h.replied.Add(d + e.slack())
}

func aReleaseCanKeepTheKeyForLongerThanItsTTL(e *env) {
	h := e.hold(e.key("kept"), 2*short)
	promised, free := e.keep(h, 4*short)
	e.takenUntil(h.Key, promised, free)
}

func aReleaseCanKeepTheKeyForLessThanItsTTL(e *env) {
	h := e.hold(e.key("kept"), long)
	promised, free := e.keep(h, 2*short)
	e.takenUntil(h.Key, promised, free)
}

func aKeptKeyIsFreeOnceItsTimeIsOver(e *env) {
	h := e.hold(e.key("kept"), long)
	_, free := e.keep(h, time.Millisecond)
	e.sleepUntil(free)
	e.hold(h.Key, long)
}

func aKeptKeyIsShownAsReleased(e *env) {
	h := e.hold(e.key("kept"), long)
	if status := e.look(h.Key); e.only(status).Released {
		e.Errorf("a holder that nobody released is shown as %+v", status)
	}
	e.keep(h, 2*long)
	refusal := e.refused(e.claim(h.Key, long))
	for _, status := range []store.Status{refusal.Status, e.look(h.Key)} {
		if !e.only(status).Released {
			e.Errorf("a released holder is shown as %+v", status)
		}
	}
}

func aKeptKeyCannotBeRenewedOrTransferred(e *env) {
	h := e.hold(e.key("kept"), long)
	e.keep(h, 2*long)
	e.unchanged(h.Key, func() {
		_, err := e.renew(h.Ref, 4*long)
		e.gone("renewal of a kept key", err)
		_, err = e.transfer(h.Ref, e.claim(h.Key, 4*long))
		e.gone("transfer of a kept key", err)
		e.refused(e.claim(h.Key, long))
	})
	status := e.look(h.Key)
	if left := status.Left(); left > 2*long+e.slack() || left < long {
		e.Errorf("the key was kept for %v, but %v are left", 2*long, left)
	}
	// The same release again, as after a lost reply.
	if err := e.end(h.Ref, 2*long); err != nil && !errors.Is(err, store.ErrGone) {
		e.Errorf("the same release again: %v", err)
	}
	e.refused(e.claim(h.Key, long))
}
