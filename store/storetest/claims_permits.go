package storetest

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var permitClaims = []claim{
	{"NoMorePermitsAreGrantedThanTheLimit", noMorePermitsAreGrantedThanTheLimit},
	{"AnExpiredPermitIsGrantedAgain", anExpiredPermitIsGrantedAgain},
	{"WeightsAreNoMoreThanTheLimitInSum", weightsAreNoMoreThanTheLimitInSum},
	{"AnExpiredWeightIsGrantedAgain", anExpiredWeightIsGrantedAgain},
	{"EachClaimIsJudgedByItsOwnLimit", eachClaimIsJudgedByItsOwnLimit},
	{"ASmallerLimitKeepsItsTurn", aSmallerLimitKeepsItsTurn},
	{"ALargerLimitLeavesEnoughForThoseBefore", aLargerLimitLeavesEnoughForThoseBefore},
	{"ContendersNeverHoldMoreWeightThanTheLimit", contendersNeverHoldMoreWeightThanTheLimit},
	{"ContendersNeverHoldMorePermitsThanTheLimit", contendersNeverHoldMorePermitsThanTheLimit},
	{"ContendersOfSeveralLimitsHeedTheirOwn", contendersOfSeveralLimitsHeedTheirOwn},
	{"ReadersAndWritersNeverHoldTheKeyAtOnce", readersAndWritersNeverHoldTheKeyAtOnce},
	{"AnotherModeIsAMismatch", anotherModeIsAMismatch},
	{"AModeEndsWithItsLastHolder", aModeEndsWithItsLastHolder},
}

func noMorePermitsAreGrantedThanTheLimit(e *env) {
	key := e.key("permits")
	var all []held
	for range 3 {
		all = append(all, e.granted(e.permit(key, 3, long)))
	}
	refusal := e.refused(e.permit(key, 3, long))
	if refusal.Mode != store.Permits || len(refusal.Holders) != 3 || refusal.Free() {
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
	if refusal.Taken() != 5 || len(refusal.Holders) != 2 {
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
	e.ends("a weight of 2", store.ReleaseRequest{Ref: two.Ref}, 4)
	e.refused(e.weighing(key, 3, 6, long))
	again := e.granted(e.weighing(key, 2, 6, long))
	e.heldBy(key, three, one, again)
	e.ends("3 permits", store.ReleaseRequest{Ref: three.Ref}, 3)
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

// eachClaimIsJudgedByItsOwnLimit rolls a key from 2 permits to 3 and back, while holders of both numbers
// are there.
func eachClaimIsJudgedByItsOwnLimit(e *env) {
	key := e.key("limits")
	old := []held{e.granted(e.permit(key, 2, long)), e.granted(e.permit(key, 2, long))}
	e.refused(e.permit(key, 2, long))
	young := e.granted(e.permit(key, 3, long))
	e.refused(e.permit(key, 3, long))
	e.refused(e.permit(key, 2, long))
	e.heldBy(key, old[0], old[1], young)

	e.release(old[0].Ref) // 2 are taken
	e.refused(e.permit(key, 2, long))
	e.refused(e.weighing(key, 2, 3, long))
	heavy := e.granted(e.weighing(key, 4, 6, long))
	if taken := e.look(key).Taken(); taken != 6 {
		e.Errorf("%d permits are shown as taken, not 6", taken)
	}
	e.refused(e.permit(key, 3, long))
	e.ends("a weight of 4", store.ReleaseRequest{Ref: heavy.Ref}, 2)
	e.release(young.Ref)
	back := e.granted(e.permit(key, 2, long))
	e.refused(e.permit(key, 2, long))
	e.refused(e.permit(key, 1, long))
	e.heldBy(key, old[1], back)
}

// aSmallerLimitKeepsItsTurn: those behind it wait, although they would fit.
func aSmallerLimitKeepsItsTurn(e *env) {
	key := e.key("limits")
	all := []held{e.granted(e.permit(key, 2, long)), e.granted(e.permit(key, 2, long))}
	small := e.waits(e.permit(key, 2, long))
	large := e.waits(e.permit(key, 3, long))
	e.refused(e.permit(key, 3, long))
	e.waits(large)
	e.offers("while 2 are taken", e.look(key), 0)

	e.ends("a permit", store.ReleaseRequest{Ref: all[0].Ref}, 1, small, large)
	e.offers("while 1 is taken", e.look(key), 1)
	e.waits(large)
	next := e.granted(e.anew(small))
	e.places("grant", next.grant.Line, large)
	e.offers("once the smaller has its permit", e.look(key), 1)
	e.granted(e.anew(large))
	e.refused(e.permit(key, 3, long))
}

// aLargerLimitLeavesEnoughForThoseBefore: of those to whom the key is offered one may come before
// another, and must not take what that one needs.
func aLargerLimitLeavesEnoughForThoseBefore(e *env) {
	key := e.key("limits")
	all := []held{e.granted(e.permit(key, 3, long)), e.granted(e.weighing(key, 2, 3, long))}
	line := []store.Claim{e.waits(e.permit(key, 3, long)), e.waits(e.permit(key, 2, long)), e.waits(e.permit(key, 4, long))}
	e.offers("while 3 are taken", e.look(key), 0)
	e.release(all[1].Ref)
	e.offers("while 1 is taken", e.look(key), 1)
	for _, c := range line[1:] {
		e.waits(c)
	}
	e.release(all[0].Ref)
	e.offers("while none is taken", e.look(key), 2)
	e.waits(line[2])
	e.granted(e.anew(line[1]))
	e.offers("while the second has its permit", e.look(key), 2)
	e.granted(e.anew(line[2]))
	e.granted(e.anew(line[0]))
	e.refused(e.permit(key, 3, long))
}

// offers checks to how many of those in line a key is offered.
func (e *env) offers(when string, s store.Status, want int) {
	e.Helper()
	if got := s.Offered(s.Waiting("")); got != want {
		e.Errorf("%s, %d of those in line are offered a permit, want %d: %+v", when, got, want, s)
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

// An occupancy has the holders of a key, and records what must never happen.
type occupancy struct {
	mu      sync.Mutex // protects the rest
	holders map[string]held
	most    int // the largest limit that a holder had
	wrong   []string
}

// before returns who holds the key before a claim is made.
func (r *occupancy) before() map[string]held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.holders)
}

// comes adds a holder. Those who were there before its claim and are there still were there when it was
// granted: they count for its own limit. Those who came meanwhile may have come after it. A holder whose time
// is over counts for nothing: its goroutine may be late to say that it goes.
func (r *occupancy) comes(h held, before map[string]held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders[h.ID] = h
	now := time.Now()
	var writers, sharers, permits, taken int
	for id, h := range r.holders {
		if !now.Before(h.honoured()) {
			continue
		}
		if h.Mode == store.Exclusive {
			writers++
			continue
		}
		sharers++
		permits += max(1, h.Weight)
		if _, was := before[id]; was {
			taken += max(1, h.Weight)
		}
	}
	if writers > 1 || writers > 0 && sharers > 0 {
		r.wrong = append(r.wrong, fmt.Sprintf("%d writers and %d sharers hold the key at once", writers, sharers))
	}
	if h.Mode != store.Permits || !now.Before(h.honoured()) {
		return
	}
	r.most = max(r.most, h.Limit)
	if taken += max(1, h.Weight); taken > h.Limit || permits > r.most {
		r.wrong = append(r.wrong, fmt.Sprintf("a claim of limit %d was granted, and %d permits are taken with it", h.Limit, max(taken, permits)))
	}
}

func (r *occupancy) goes(h held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.holders, h.ID)
}

// contend starts one contender for each kind of claim, and checks that they never hold
// the key together when they must not.
func (e *env) contend(kinds ...func() store.Claim) {
	holding := occupancy{holders: make(map[string]held)}
	var wg sync.WaitGroup
	give := time.Now().Add(bound)
	for i, kind := range kinds {
		wg.Go(func() {
			for served := 0; served < e.rounds(20, 3) && time.Now().Before(give); {
				c := kind()
				if served%3 == 2 && i%2 == 0 {
					c.TTL = short // never released; it expires
				}
				before := holding.before()
				h, err := e.try(c)
				if err == nil {
					served++
					e.holdFor(&holding, h, before)
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
func (e *env) holdFor(holding *occupancy, h held, before map[string]held) {
	if !h.inTime() {
		return
	}
	holding.comes(h, before)
	if h.TTL == short {
		e.sleepUntil(h.honoured().Add(-short / 4))
	} else {
		time.Sleep(time.Millisecond)
	}
	holding.goes(h)
	if h.TTL == short {
		return
	}
	if err := e.end(h.Ref, 0); err != nil {
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

func contendersOfSeveralLimitsHeedTheirOwn(e *env) {
	key := e.key("limits")
	var kinds []func() store.Claim
	for i := range e.rounds(8, 6) {
		kinds = append(kinds, func() store.Claim { return e.weighing(key, 1+i%2, 2+i%3, long) })
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

func anotherModeIsAMismatch(e *env) {
	shared, permits := e.key("shared"), e.key("permits")
	e.granted(e.reader(shared, long))
	e.granted(e.permit(permits, 3, long))
	for _, c := range []store.Claim{
		e.permit(shared, 3, long),
		e.reader(permits, long),
	} {
		c = e.placed(c) // it does not wait all the same
		e.unchanged(c.Key, func() {
			_, err := e.try(c)
			var mismatch *store.MismatchError
			if !errors.As(err, &mismatch) || !errors.Is(err, store.ErrModeMismatch) {
				e.Errorf("%s on %q: got %v, want a *MismatchError", c.Mode, c.Key, err)
			} else if status := e.look(c.Key); mismatch.Key != c.Key || mismatch.Live != status.Mode || mismatch.Claim.Mode != c.Mode {
				e.Errorf("the mismatch does not name both modes: %+v", mismatch)
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
	if status := e.look(key); status.Mode != store.Permits {
		e.Errorf("status: %+v", status)
	}
	e.heldBy(key, next)
}
