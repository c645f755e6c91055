package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var permitClaims = []claim{
	{"NoMorePermitsAreGrantedThanTheLimit", noMorePermitsAreGrantedThanTheLimit},
	{"AnExpiredPermitIsGrantedAgain", anExpiredPermitIsGrantedAgain},
	{"ContendersNeverHoldMorePermitsThanTheLimit", contendersNeverHoldMorePermitsThanTheLimit},
	{"ReadersAndWritersNeverHoldTheKeyAtOnce", readersAndWritersNeverHoldTheKeyAtOnce},
	{"AnotherModeOrLimitIsAMismatch", anotherModeOrLimitIsAMismatch},
	{"AModeEndsWithItsLastHolder", aModeEndsWithItsLastHolder},
}

func noMorePermitsAreGrantedThanTheLimit(e *env) {
	key := e.key("permits")
	var all []held
	for range 3 {
		all = append(all, e.granted(e.permit(key, 3, long)))
	}
	refusal := e.refused(e.permit(key, 3, long))
	if refusal.Mode != store.Permits || refusal.Limit != 3 || len(refusal.Holders) != 3 || refusal.Free() {
		e.Errorf("the fourth claim is shown %+v", refusal.Status)
	}
	e.heldBy(key, all...)
	e.release(all[1].Ref)
	all[1] = e.granted(e.permit(key, 3, long))
	e.refused(e.permit(key, 3, long))
	e.heldBy(key, all...)
}

func anExpiredPermitIsGrantedAgain(e *env) {
	key := e.key("permits")
	dies, stays := e.granted(e.permit(key, 2, short)), e.granted(e.permit(key, 2, long))
	e.refusedUntil(dies.honoured(), e.permit(key, 2, long))
	e.outlive(dies)
	next := e.granted(e.permit(key, 2, long))
	e.heldBy(key, stays, next)
	e.refused(e.permit(key, 2, long))
}

// An occupancy counts the holders of a key, and records what must never happen.
type occupancy struct {
	mu      sync.Mutex // protects the rest
	sharers int
	writers int
	wrong   []string
}

func (r *occupancy) add(c store.Claim, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Mode == store.Exclusive {
		r.writers += by
	} else {
		r.sharers += by
	}
	if r.writers > 1 || r.writers > 0 && r.sharers > 0 || c.Mode == store.Permits && r.sharers > c.Limit {
		r.wrong = append(r.wrong, fmt.Sprintf("%d writers and %d sharers hold the key at once", r.writers, r.sharers))
	}
}

// contend starts one contender for each kind of claim, and checks that they never hold
// the key together when they must not.
func (e *env) contend(kinds ...func() store.Claim) {
	var holding occupancy
	var wg sync.WaitGroup
	give := time.Now().Add(bound)
	for i, kind := range kinds {
		wg.Go(func() {
			for served := 0; served < e.rounds(20, 3) && time.Now().Before(give); {
				c := kind()
				if served%3 == 2 && i%2 == 0 {
					c.TTL = short // never released; it expires
				}
				h, err := e.try(c)
				if err == nil {
					served++
					e.holdFor(&holding, h)
				} else if !errors.Is(err, store.ErrHeld) {
					e.Errorf("contending for %q: %v", c.Key, err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	for _, w := range holding.wrong {
		e.Error(w)
	}
}

// holdFor holds the key for a while, and then releases it or lets it expire.
func (e *env) holdFor(holding *occupancy, h held) {
	if !h.inTime() {
		return
	}
	holding.add(h.Claim, 1)
	if h.TTL == short {
		e.sleepUntil(h.honoured().Add(-short / 4))
	} else {
		time.Sleep(time.Millisecond)
	}
	holding.add(h.Claim, -1)
	if h.TTL == short {
		return
	}
	if err := e.end(h.Ref, 0).Err; err != nil {
		e.Errorf("release: %v", err)
	}
}

func contendersNeverHoldMorePermitsThanTheLimit(e *env) {
	key := e.key("permits")
	var kinds []func() store.Claim
	for range e.rounds(8, 6) {
		kinds = append(kinds, func() store.Claim { return e.permit(key, 3, long) })
	}
	e.contend(kinds...)
}

func readersAndWritersNeverHoldTheKeyAtOnce(e *env) {
	key := e.key("shared")
	var kinds []func() store.Claim
	for range e.rounds(4, 3) {
		kinds = append(kinds, func() store.Claim { return e.reader(key, long) }, func() store.Claim { return e.claim(key, long) })
	}
	e.contend(kinds...)
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
		c = e.placed(c) // it does not wait all the same
		e.unchanged(c.Key, func() {
			_, err := e.try(c)
			var mismatch *store.MismatchError
			if !errors.As(err, &mismatch) || !errors.Is(err, store.ErrModeMismatch) {
				e.Errorf("%s of limit %d on %q: got %v, want a *MismatchError", c.Mode, c.Limit, c.Key, err)
			} else if status := e.look(c.Key); mismatch.Key != c.Key || mismatch.Live != status.Mode || mismatch.Limit != status.Limit ||
				mismatch.Claim.Mode != c.Mode || mismatch.Claim.Limit != c.Limit {
				e.Errorf("the mismatch does not name both modes and limits: %+v", mismatch)
			}
		})
	}
}

func aModeEndsWithItsLastHolder(e *env) {
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
