package storetest

import (
	"context"
	"slices"

	"github.com/mongolock/mongolock/store"
)

// brokenTogether are stores that mishandle many claims at once.
var brokenTogether = []broken{
	{"BulkOfClaimsOutOfOrder", func() store.Store { return claimsOutOfOrder{newSound()} },
		[]string{"ABulkOfClaimsAnswersEachInItsOrder"}},
	{"BulkOfClaimsThatTakesOver", func() store.Store { return claimsThatTakeOver{newSound()} },
		[]string{"ABulkOfClaimsAnswersEachInItsOrder", "ABulkOfClaimsLeavesWhatOthersHold"}},
	{"BulkOfClaimsAllOrNone", func() store.Store { return claimsAllOrNone{newSound()} },
		[]string{"ABulkOfClaimsAnswersEachInItsOrder"}},
	{"BulkOfClaimsUnderOneID", func() store.Store { return claimsUnderOneID{newSound()} },
		[]string{"EachGrantOfABulkIsALeaseByItself", "AnUndoOfOneClaimOfABulkLeavesTheOthers"}},
	{"BulkOfClaimsWithOneToken", func() store.Store { return claimsWithOneToken{newSound()} },
		[]string{"TokensIncreaseAcrossBulks"}},
	{"BulkOfClaimsCutShort", func() store.Store { return claimsCutShort{newSound()} },
		[]string{"ABulkOfClaimsCanBeEmptyOrFull"}},
	{"BulkOfClaimsThatReplaceForeignRecords", func() store.Store { return claimsOnForeign{newSound()} },
		[]string{"ABulkOfClaimsNeverChangesForeignRecords"}},
}

type claimsOutOfOrder struct{ sound }

func (s claimsOutOfOrder) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	answers := s.Store.AcquireMany(ctx, batch)
	slices.Reverse(answers)
	return slices.Concat(answers[1:], answers[:min(1, len(answers))])
}

type claimsThatTakeOver struct{ sound }

func (s claimsThatTakeOver) AcquireMany(_ context.Context, batch []store.Claim) []store.Claimed {
	answers := make([]store.Claimed, len(batch))
	for i, c := range batch {
		answers[i].Grant, answers[i].Err = s.replace(c)
	}
	return answers
}

// claimsAllOrNone gives back what it granted if one claim was refused, and says nothing.
type claimsAllOrNone struct{ sound }

func (s claimsAllOrNone) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	answers := s.Store.AcquireMany(ctx, batch)
	if slices.ContainsFunc(answers, func(a store.Claimed) bool { return a.Err != nil }) {
		for _, c := range batch {
			_, _ = s.Store.Undo(ctx, c.Ref, nil)
		}
	}
	return answers
}

// claimsUnderOneID gives every holder of a bulk the ID of the first.
type claimsUnderOneID struct{ sound }

func (s claimsUnderOneID) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].ID = batch[0].ID
	}
	return s.Store.AcquireMany(ctx, batch)
}

type claimsWithOneToken struct{ sound }

func (s claimsWithOneToken) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	answers := s.Store.AcquireMany(ctx, batch)
	for i := range answers {
		answers[i].Token = 1
	}
	return answers
}

// claimsCutShort claims a hundred at most, and says that all are granted.
type claimsCutShort struct{ sound }

func (s claimsCutShort) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	answers := s.Store.AcquireMany(ctx, batch[:min(100, len(batch))])
	return append(answers, make([]store.Claimed, len(batch)-len(answers))...)
}

type claimsOnForeign struct{ sound }

func (s claimsOnForeign) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	for _, c := range batch {
		if _, foreign := s.Store.Foreign(c.Key); foreign {
			s.Delete(c.Key)
		}
	}
	return s.Store.AcquireMany(ctx, batch)
}
