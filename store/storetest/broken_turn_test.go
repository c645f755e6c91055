package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock/store"
)

// brokenTurns are stores that grant a key out of turn, or not in its turn.
var brokenTurns = []broken{
	{"LineIgnored", func() store.Store { return lineIgnored{newSound()} },
		[]string{"AKeyIsGrantedInTheOrderOfItsLine", "AnExpiredKeyIsGrantedInTheOrderOfItsLine", "ContendersAreServedInTheOrderOfTheirLine",
			"AWaitingWriterKeepsNewSharersOut", "ReadersBeforeTheFirstWriterComeTogether", "AsManyPermitsAreOfferedAsAreFree"}},
	{"SharersOneByOne", func() store.Store { return sharersOneByOne{newSound()} },
		[]string{"ReadersBeforeTheFirstWriterComeTogether", "AsManyPermitsAreOfferedAsAreFree"}},
	{"PassIgnored", func() store.Store { return passIgnored{newSound()} },
		[]string{"AGrantTakesOutThePlacesThatItPasses", "OneThatWasPassedStandsBeforeThoseThatCameLater", "OneThatCouldNotHaveTheKeyIsNotPassed"}},
	{"PassedPlaceStays", func() store.Store { return passedPlaceStays{newSound()} },
		[]string{"AGrantTakesOutThePlacesThatItPasses"}},
	{"PassTakesOutAtOnce", func() store.Store { return passTakesOutAtOnce{newSound()} },
		[]string{"ARefusedClaimPassesNobody", "OneThatCouldNotHaveTheKeyIsNotPassed"}},
	{"PassOfAllBefore", func() store.Store { return passOfAllBefore{newSound()} },
		[]string{"ARefusedClaimPassesNobody"}},
	{"PassOfWhoCouldNotHaveIt", func() store.Store { return passOfWhoCouldNotHaveIt{newSound()} },
		[]string{"OneThatCouldNotHaveTheKeyIsNotPassed"}},
	{"PassedStandsAtTheEnd", func() store.Store { return passedStandsAtTheEnd{newSound()} },
		[]string{"OneThatWasPassedStandsBeforeThoseThatCameLater"}},
	{"SlowIsNotShown", func() store.Store { return slowIsNotShown{newSound()} },
		[]string{"OneThatWasPassedStandsBeforeThoseThatCameLater"}},
	{"FreedIsNotShown", func() store.Store { return freedIsNotShown{newSound()} },
		[]string{"ItIsShownSinceWhenAKeyIsFree", "AGrantTakesOutThePlacesThatItPasses"}},
	{"UseIsNotShown", func() store.Store { return useIsNotShown{newSound()} },
		[]string{"ItIsShownSinceWhenAKeyIsFree"}},
	{"StalePlacesCount", func() store.Store { return stalePlacesCount{newSound()} },
		[]string{"AHeavyClaimAmongPermitsIsStaleSooner", "AStalePlaceIsPassed", "AWriterAmongSharersIsStaleSooner"}},
	{"StalePlacesTold", func() store.Store { return stalePlacesTold{newSound()} },
		[]string{"AReleaseTellsWhoStillCounts"}},
	{"PlacesForHalfAMinute", func() store.Store { return placesFor{newSound(), store.ReserveFor} },
		[]string{"AStalePlaceIsPassed", "AWriterAmongSharersIsStaleSooner", "AWaiterThatIsSeenIsNotPassed"}},
	{"StalePlaceOfOnesOwn", func() store.Store { return placesFor{newSound(), store.PlaceFor} },
		[]string{"AWaiterThatIsSeenIsNotPassed"}},
	{"LineFullForEver", func() store.Store { return lineFullForEver{newSound()} },
		[]string{"AFullLineLosesStalePlaces"}},
	{"MismatchWaits", func() store.Store { return mismatchWaits{newSound()} },
		[]string{"AMismatchLeavesNoPlace", "AnotherModeIsAMismatch"}},
}

// lineIgnored grants a key that its holders do not keep from the claimant.
type lineIgnored struct{ sound }

func (s lineIgnored) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if _, status := s.holder(c.Key); errors.Is(err, store.ErrHeld) && len(status.Line) > 0 {
		s.clear(c.Key)
		place := c.Place
		c.Place = ""
		if g, err = s.Store.Acquire(ctx, c); err != nil {
			s.queue(c.Key, status.Line...)
			c.Place = place
			err = s.refusal(c)
		}
	}
	return g, err
}

// sharersOneByOne offers a key to the first in line only.
type sharersOneByOne struct{ sound }

func (s sharersOneByOne) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); shares(c.Mode) && stands(status, c.Place) && status.Line[0].Place != c.Place {
		return store.Grant{}, s.refusal(c)
	}
	return s.Store.Acquire(ctx, c)
}

type passIgnored struct{ sound }

func (s passIgnored) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	c.Unseen = time.Time{}
	return s.Store.Acquire(ctx, c)
}

type passedPlaceStays struct{ sound }

func (s passedPlaceStays) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	_, before := s.holder(c.Key)
	g, err := s.Store.Acquire(ctx, c)
	if err == nil && !c.Unseen.IsZero() {
		s.queue(c.Key, before.Line[0])
		g.Line = append(g.Line, before.Line[0].Place)
	}
	return g, err
}

type passTakesOutAtOnce struct{ sound }

func (s passTakesOutAtOnce) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.leaveBefore(ctx, c, func(w store.Waiter) bool { return !w.Seen.After(c.Unseen) })
	return s.Store.Acquire(ctx, c)
}

// leaveBefore takes places before that of a claim which passes out of the line.
func (s sound) leaveBefore(ctx context.Context, c store.Claim, which func(store.Waiter) bool) {
	_, status := s.holder(c.Key)
	if c.Unseen.IsZero() || !stands(status, c.Place) {
		return
	}
	for _, w := range status.Line {
		if w.Place == c.Place {
			break
		}
		if which(w) {
			_, _ = s.Store.Leave(ctx, c.Key, w.Place)
		}
	}
}

// passOfAllBefore grants a free key to whoever passes somebody.
type passOfAllBefore struct{ sound }

func (s passOfAllBefore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); status.Free() {
		s.leaveBefore(ctx, c, func(store.Waiter) bool { return true })
	}
	return s.Store.Acquire(ctx, c)
}

// passOfWhoCouldNotHaveIt passes those for whom the key is not free.
type passOfWhoCouldNotHaveIt struct{ sound }

func (s passOfWhoCouldNotHaveIt) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); !status.Free() && c.Mode != store.Exclusive {
		s.leaveBefore(ctx, c, func(w store.Waiter) bool { return !w.Seen.After(c.Unseen) })
	}
	return s.Store.Acquire(ctx, c)
}

type passedStandsAtTheEnd struct{ sound }

func (s passedStandsAtTheEnd) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	c.Since = time.Time{}
	return s.Store.Acquire(ctx, c)
}

type slowIsNotShown struct{ sound }

func (s slowIsNotShown) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	for i := range all {
		for n := range all[i].Line {
			all[i].Line[n].Slow = false
		}
	}
	return all, err
}

type freedIsNotShown struct{ sound }

func (s freedIsNotShown) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	for i := range all {
		all[i].Freed = time.Time{}
	}
	return all, err
}

type useIsNotShown struct{ sound }

func (s useIsNotShown) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	e.Used = 0
	return s.Store.Release(ctx, e)
}

// stalePlacesCount waits for ever for the first in line.
type stalePlacesCount struct{ sound }

func (s stalePlacesCount) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); len(status.Line) > 0 && status.Stale(status.Line[0]) && status.Line[0].Place != c.Place {
		return store.Grant{}, s.refusal(c)
	}
	return s.Store.Acquire(ctx, c)
}

// stalePlacesTold answers a release with all who stood in line.
type stalePlacesTold struct{ sound }

func (s stalePlacesTold) Release(_ context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	answer, err := s.end(e)
	_, status := s.holder(e.Key)
	answer.Line = nil
	for _, w := range status.Line {
		answer.Line = append(answer.Line, w.Place)
	}
	return answer, err
}

// placesFor takes out all places that were not seen for so long, also that of the claimant.
type placesFor struct {
	sound
	most time.Duration
}

func (s placesFor) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	_, status := s.holder(c.Key)
	for _, w := range status.Line {
		if status.Now.Sub(w.Seen) >= s.most {
			_, _ = s.Store.Leave(ctx, c.Key, w.Place)
		}
	}
	return s.Store.Acquire(ctx, c)
}

// lineFullForEver keeps the places of the dead until a grant.
type lineFullForEver struct{ sound }

func (s lineFullForEver) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); len(status.Line) >= store.LineMost && !stands(status, c.Place) {
		return store.Grant{}, s.refusal(c)
	}
	return s.Store.Acquire(ctx, c)
}

// mismatchWaits has a claim that cannot share a key wait for it.
type mismatchWaits struct{ sound }

func (s mismatchWaits) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrModeMismatch) {
		_, _ = s.Store.Acquire(ctx, store.Claim{Ref: exclusive(c.Key, c.ID), Limit: 1, TTL: c.TTL, Place: c.Place})
	}
	return g, err
}
