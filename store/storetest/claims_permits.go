package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var permitClaims = []claim{
	{"NoMorePermitsAreGrantedThanTheLimit", noMorePermitsAreGrantedThanTheLimit},
	{"AnExpiredPermitIsGrantedAgain", anExpiredPermitIsGrantedAgain},
	{"WeightsAreNoMoreThanTheLimitInSum", weightsAreNoMoreThanTheLimitInSum},
	{"AnExpiredWeightIsGrantedAgain", anExpiredWeightIsGrantedAgain},
	{"AWeightAboveTheLimitIsAMismatch", aWeightAboveTheLimitIsAMismatch},
	{"ContendersNeverHoldMoreWeightThanTheLimit", contendersNeverHoldMoreWeightThanTheLimit},
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

// weighing is a claim of w of n permits.
func (e *env) weighing(key string, w, n int, ttl time.Duration) store.Claim {
	c := e.permit(key, n, ttl)
	c.Weight = w
	return c
}

func weightsAreNoMoreThanTheLimitInSum(e *env) {
	key := e.key("weights")
	two, three := e.granted(e.weighing(key, 2, 6, long)), e.granted(e.weighing(key, 3, 6, long))
	refusal := e.refused(e.weighing(key, 2, 6, long))
	if refusal.Taken() != 5 || refusal.Limit != 6 || len(refusal.Holders) != 2 {
		e.Errorf("a claim that 5 of 6 permits refuse is shown %+v", refusal.Status)
	}
	one := e.granted(e.weighing(key, 1, 6, long))
	e.refused(e.permit(key, 6, long))
	for _, h := range e.look(key).Holders {
		for _, c := range []held{two, three, one} {
			if h.ID == c.ID && max(1, h.Weight) != c.Weight {
				e.Errorf("a holder of weight %d is shown with %d", c.Weight, h.Weight)
			}
		}
	}
	e.ended("a weight of 2", e.end(two.Ref, 0), 4)
	e.refused(e.weighing(key, 3, 6, long))
	again := e.granted(e.weighing(key, 2, 6, long))
	e.heldBy(key, three, one, again)
	for _, answer := range e.releaseMany(store.Ending{Ref: three.Ref}, store.Ending{Ref: e.hold(e.key("another"), long).Ref}) {
		if answer.Err != nil || answer.Left != 3 && answer.Left != 0 {
			e.Errorf("release of 3 permits in a bulk: %d are taken, %v; want 3", answer.Left, answer.Err)
		}
	}
	e.granted(e.weighing(key, 3, 6, long))
	e.refused(e.weighing(key, 1, 6, long))
}

func anExpiredWeightIsGrantedAgain(e *env) {
	key := e.key("weights")
	dies, stays := e.granted(e.weighing(key, 3, 4, short)), e.granted(e.weighing(key, 1, 4, long))
	e.refusedUntil(dies.honoured(), e.weighing(key, 2, 4, long))
	e.outlive(dies)
	next := e.granted(e.weighing(key, 2, 4, long))
	e.heldBy(key, stays, next)
	e.refused(e.weighing(key, 2, 4, long))
}

func aWeightAboveTheLimitIsAMismatch(e *env) {
	key := e.key("weights")
	for range 2 { // of a free key, and of one that is held
		_, err := e.try(e.placed(e.weighing(key, 4, 3, long)))
		if !errors.Is(err, store.ErrModeMismatch) || !store.IsVerdict(err) {
			e.Errorf("4 of 3 permits: %v", err)
		}
		e.line(key)
		e.granted(e.weighing(key, 1, 3, long))
	}
}

func contendersNeverHoldMoreWeightThanTheLimit(e *env) {
	key := e.key("weights")
	var kinds []func() store.Claim
	for i := range e.rounds(8, 6) {
		kinds = append(kinds, func() store.Claim { return e.weighing(key, 1+i%3, 4, long) })
	}
	e.contend(kinds...)
}

// An occupancy counts the holders of a key, and records what must never happen.
type occupancy struct {
	mu      sync.Mutex // protects the rest
	sharers int
	writers int
	wrong   []string
	most    int // permits that were set; 0: as many as the claims say
}

func (r *occupancy) add(c store.Claim, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Mode == store.Exclusive {
		r.writers += by
	} else {
		r.sharers += by * max(1, c.Weight)
	}
	if r.writers > 1 || r.writers > 0 && r.sharers > 0 || c.Mode == store.Permits && r.sharers > cmp.Or(r.most, c.Limit) {
		r.wrong = append(r.wrong, fmt.Sprintf("%d writers and %d sharers hold the key at once", r.writers, r.sharers))
	}
}

// contend starts one contender for each kind of claim, and checks that they never hold
// the key together when they must not.
func (e *env) contend(kinds ...func() store.Claim) { e.contendFor(0, kinds...) }

// contendFor is contend for a key of which so many permits were set.
func (e *env) contendFor(set int, kinds ...func() store.Claim) {
	holding := occupancy{most: set}
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
