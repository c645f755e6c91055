package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var permitClaims = []claim{
	{"PermitsAreNoMoreThanTheirLimit", permitsAreNoMoreThanTheirLimit},
	{"APermitThatRanOutMakesRoom", aPermitThatRanOutMakesRoom},
	{"ContendersForPermitsAreNeverTooMany", contendersForPermitsAreNeverTooMany},
	{"ReadersAndWritersAreNeverInsideTogether", readersAndWritersAreNeverInsideTogether},
	{"AnotherModeOrLimitIsAMismatch", anotherModeOrLimitIsAMismatch},
	{"AModeGoesWithItsHolders", aModeGoesWithItsHolders},
}

func permitsAreNoMoreThanTheirLimit(e *env) {
	key := e.key("permits")
	var all []held
	for range 3 {
		all = append(all, e.granted(e.permit(key, 3, long)))
	}
	refusal := e.refused(e.permit(key, 3, long))
	if refusal.Mode != store.Permits || refusal.Limit != 3 || len(refusal.Holders) != 3 || refusal.Free() {
		e.Errorf("the fourth is told of %+v", refusal.Status)
	}
	e.heldBy(key, all...)
	e.release(all[1].Ref)
	all[1] = e.granted(e.permit(key, 3, long))
	e.refused(e.permit(key, 3, long))
	e.heldBy(key, all...)
}

func aPermitThatRanOutMakesRoom(e *env) {
	key := e.key("permits")
	dies, stays := e.granted(e.permit(key, 2, short)), e.granted(e.permit(key, 2, long))
	e.refusedUntil(dies.honoured(), e.permit(key, 2, long))
	e.outlive(dies)
	next := e.granted(e.permit(key, 2, long))
	e.heldBy(key, stays, next)
	e.refused(e.permit(key, 2, long))
}

// A room counts who is inside, and what should never be.
type room struct {
	mu      sync.Mutex // protects the rest
	readers int
	writers int
	wrong   []string
}

func (r *room) enter(c store.Claim, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Mode == store.Exclusive {
		r.writers += by
	} else {
		r.readers += by
	}
	if r.writers > 1 || r.writers > 0 && r.readers > 0 || c.Mode == store.Permits && r.readers > c.Limit {
		r.wrong = append(r.wrong, fmt.Sprintf("%d writers and %d others inside together", r.writers, r.readers))
	}
}

// crowd has so many contenders at a key, each with claims of its own kind.
func (e *env) crowd(kinds ...func() store.Claim) {
	var inside room
	var wg sync.WaitGroup
	give := time.Now().Add(bound)
	for i, kind := range kinds {
		wg.Go(func() {
			for served := 0; served < e.rounds(20, 3) && time.Now().Before(give); {
				c := kind()
				if served%3 == 2 && i%2 == 0 {
					c.TTL = short // it dies inside, and is out by then
				}
				h, err := e.try(c)
				if err == nil {
					served++
					e.stay(&inside, h)
				} else if !errors.Is(err, store.ErrHeld) {
					e.Errorf("contending for %q: %v", c.Key, err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	for _, w := range inside.wrong {
		e.Error(w)
	}
}

// stay is inside for a while, and leaves or dies.
func (e *env) stay(inside *room, h held) {
	if !h.inTime() {
		return
	}
	inside.enter(h.Claim, 1)
	if h.TTL == short {
		e.sleepUntil(h.honoured().Add(-short / 4))
	} else {
		time.Sleep(time.Millisecond)
	}
	inside.enter(h.Claim, -1)
	if h.TTL == short {
		return
	}
	if _, err := e.store.Release(e.ctx(), h.Ref, 0); err != nil {
		e.Errorf("release: %v", err)
	}
}

func contendersForPermitsAreNeverTooMany(e *env) {
	key := e.key("permits")
	var kinds []func() store.Claim
	for range e.rounds(8, 6) {
		kinds = append(kinds, func() store.Claim { return e.permit(key, 3, long) })
	}
	e.crowd(kinds...)
}

func readersAndWritersAreNeverInsideTogether(e *env) {
	key := e.key("shared")
	var kinds []func() store.Claim
	for range e.rounds(4, 3) {
		kinds = append(kinds, func() store.Claim { return e.reader(key, long) }, func() store.Claim { return e.claim(key, long) })
	}
	e.crowd(kinds...)
}

func anotherModeOrLimitIsAMismatch(e *env) {
	shared, permits := e.key("shared"), e.key("permits")
	e.granted(e.reader(shared, long))
	e.granted(e.permit(permits, 3, long))
	for _, c := range []store.Claim{
		e.permit(shared, 3, long),
		e.reader(permits, long),
		e.permit(permits, 4, long),
	} {
		c.Want = long
		e.unchanged(c.Key, func() {
			_, err := e.try(c)
			mismatch, ok := errors.AsType[*store.MismatchError](err)
			if !ok || !errors.Is(err, store.ErrModeMismatch) {
				e.Errorf("%s of limit %d on %q: got %v, want a *MismatchError", c.Mode, c.Limit, c.Key, err)
			} else if status := e.look(c.Key); mismatch.Key != c.Key || mismatch.Live != status.Mode || mismatch.Limit != status.Limit ||
				mismatch.Claim.Mode != c.Mode || mismatch.Claim.Limit != c.Limit {
				e.Errorf("the mismatch does not name both: %+v", mismatch)
			}
		})
	}
}

func aModeGoesWithItsHolders(e *env) {
	key := e.key("mode")
	h := e.granted(e.permit(key, 2, long))
	e.release(h.Ref)
	dies := e.granted(e.reader(key, short))
	e.outlive(dies)
	next := e.granted(e.permit(key, 5, long))
	if status := e.look(key); status.Mode != store.Permits || status.Limit != 5 {
		e.Errorf("status: %+v", status)
	}
	e.heldBy(key, next)
}
