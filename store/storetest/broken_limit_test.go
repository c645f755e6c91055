package storetest

import (
	"context"

	"github.com/mongolock/mongolock/store"
)

// brokenLimits are stores that mishandle the number of permits that was set.
var brokenLimits = []broken{
	{"NumberIgnored", func() store.Store { return numberIgnored{newSound()} },
		[]string{"TheNumberThatWasSetCounts", "ALowerNumberEndsNoHolder", "AClaimOfMoreThanTheNumberIsPassed", "ContendersNeverHoldMoreThanTheNumber"}},
	{"NumberOnlyLowers", func() store.Store { return numberOnlyLowers{newSound()} },
		[]string{"TheNumberThatWasSetCounts", "AsManyAreOfferedAsTheNumberSays"}},
	{"NumberEndsHolders", func() store.Store { return numberEndsHolders{newSound()} },
		[]string{"ALowerNumberEndsNoHolder"}},
	{"NumberGoesWithTheRecord", func() store.Store { return numberGoesWithTheRecord{newSound()} },
		[]string{"TheNumberOutlastsItsHolders"}},
	{"NumberIsAMismatch", func() store.Store { return numberIsAMismatch{newSound()} },
		[]string{"TheNumberIsNoMismatch"}},
	{"HeavyHoldsUpTheLine", func() store.Store { return heavyHoldsUpTheLine{newSound()} },
		[]string{"AClaimOfMoreThanTheNumberIsPassed"}},
	{"ReleaseTellsNoNumber", func() store.Store { return releaseTellsNoNumber{newSound()} },
		[]string{"AsManyAreOfferedAsTheNumberSays"}},
	{"NumberSetTooLate", func() store.Store { return numberSetTooLate{newSound()} },
		[]string{"ANumberIsNotSetAfterItsContextEnded"}},
	{"NumberOfAForeignKey", func() store.Store { return numberOfAForeignKey{newSound()} },
		[]string{"AForeignRecordAnswersErrForeignAndStays"}},
}

type numberIgnored struct{ sound }

func (s numberIgnored) SetLimit(_ context.Context, key string, n int) (store.Status, error) {
	_, status := s.holder(key)
	status.Set = n
	return status, nil
}

type numberOnlyLowers struct{ sound }

func (s numberOnlyLowers) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); c.Mode == store.Permits && status.Taken()+max(1, c.Weight) > c.Limit {
		return store.Grant{}, &store.HeldError{Status: status}
	}
	return s.Store.Acquire(ctx, c)
}

type numberEndsHolders struct{ sound }

func (s numberEndsHolders) SetLimit(ctx context.Context, key string, n int) (store.Status, error) {
	for _, status := s.holder(key); n > 0 && status.Taken() > n; _, status = s.holder(key) {
		s.end(store.Ending{Ref: store.Ref{Key: key, ID: status.Holders[0].ID, Mode: status.Mode}})
	}
	return s.Store.SetLimit(ctx, key, n)
}

type numberGoesWithTheRecord struct{ sound }

func (s numberGoesWithTheRecord) Release(ctx context.Context, batch []store.Ending) []store.Ended {
	return eachRelease(batch, func(e store.Ending) store.Ended {
		answer := s.end(e)
		if h, _ := s.holder(e.Key); h.ID == "" {
			_, _ = s.Store.SetLimit(ctx, e.Key, 0)
		}
		return answer
	})
}

type numberIsAMismatch struct{ sound }

func (s numberIsAMismatch) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); c.Mode == store.Permits && status.Set > 0 && c.Weight > status.Set {
		return store.Grant{}, &store.MismatchError{Key: c.Key, Live: c.Mode, Limit: status.Set, Claim: c}
	}
	return s.Store.Acquire(ctx, c)
}

// heavyHoldsUpTheLine lets nobody pass the first in line, though that cannot be granted the key.
type heavyHoldsUpTheLine struct{ sound }

func (s heavyHoldsUpTheLine) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); len(status.Line) > 0 && status.Set > 0 && status.Line[0].Place.Weight() > status.Set && c.Place != status.Line[0].Place {
		return store.Grant{}, &store.HeldError{Status: status}
	}
	return s.Store.Acquire(ctx, c)
}

type releaseTellsNoNumber struct{ sound }

func (s releaseTellsNoNumber) Release(_ context.Context, batch []store.Ending) []store.Ended {
	return eachRelease(batch, func(e store.Ending) store.Ended {
		answer := s.end(e)
		answer.Set = 0
		return answer
	})
}

type numberSetTooLate struct{ sound }

func (s numberSetTooLate) SetLimit(ctx context.Context, key string, n int) (store.Status, error) {
	return s.Store.SetLimit(context.WithoutCancel(ctx), key, n)
}

type numberOfAForeignKey struct{ sound }

func (s numberOfAForeignKey) SetLimit(ctx context.Context, key string, n int) (store.Status, error) {
	status, err := s.Store.SetLimit(ctx, key, n)
	if err != nil && ctx.Err() == nil {
		err = nil
	}
	return status, err
}
