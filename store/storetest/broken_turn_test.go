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
		[]string{"AGrantTakesOutThePlaceThatItPasses"}},
	{"PassedPlaceStays", func() store.Store { return passedPlaceStays{newSound()} },
		[]string{"AGrantTakesOutThePlaceThatItPasses"}},
	{"PassTakesOutAtOnce", func() store.Store { return passTakesOutAtOnce{newSound()} },
		[]string{"ARefusedClaimPassesNobody"}},
	{"PassOfAllBefore", func() store.Store { return passOfAllBefore{newSound()} },
		[]string{"ARefusedClaimPassesNobody"}},
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
	c.Pass = ""
	return s.Store.Acquire(ctx, c)
}

type passedPlaceStays struct{ sound }

func (s passedPlaceStays) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil && c.Pass != "" {
		s.queue(c.Key, store.Waiter{Place: c.Pass})
		g.Line = append(g.Line, c.Pass)
	}
	return g, err
}

type passTakesOutAtOnce struct{ sound }

func (s passTakesOutAtOnce) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	_, _ = s.Store.Leave(ctx, c.Key, c.Pass, false)
	return s.Store.Acquire(ctx, c)
}

// passOfAllBefore grants a free key to whoever passes somebody.
type passOfAllBefore struct{ sound }

func (s passOfAllBefore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); c.Pass != "" && status.Free() {
		for _, w := range status.Line {
			if w.Place == c.Place {
				break
			}
			_, _ = s.Store.Leave(ctx, c.Key, w.Place, false)
		}
	}
	return s.Store.Acquire(ctx, c)
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

func (s stalePlacesTold) Release(_ context.Context, e store.Ending) (store.Ended, error) {
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
			_, _ = s.Store.Leave(ctx, c.Key, w.Place, false)
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
