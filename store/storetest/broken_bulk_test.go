package storetest

import (
	"context"
	"slices"

	"github.com/mongolock/mongolock/store"
)

// brokenBulks are stores that mishandle many releases, or many notices, at once.
var brokenBulks = []broken{
	{"BulkByKey", func() store.Store { return bulkByKey{newSound()} },
		[]string{"ABulkOfReleasesChangesOnlyWhatItNames", "ABulkThatIsSentAgainAnswersErrGone"}},
	{"BulkThatForgetsWhoWaits", func() store.Store { return bulkThatForgetsWhoWaits{newSound()} },
		[]string{"ABulkAnswersEachReleaseInItsOrder", "ABulkOfSharersLeavesTheOthersAndAWritersWord"}},
	{"BulkOutOfOrder", func() store.Store { return bulkOutOfOrder{newSound()} },
		[]string{"ABulkAnswersEachReleaseInItsOrder"}},
	{"BulkThatIgnoresKeep", func() store.Store { return bulkThatIgnoresKeep{newSound()} },
		[]string{"ABulkOfReleasesKeepsTheKeysThatItShall"}},
	{"BulkCutShort", func() store.Store { return bulkCutShort{newSound()} },
		[]string{"ABulkOfReleasesCanBeEmptyOrFull"}},
	{"BulkOfDistinctKeys", func() store.Store { return bulkOfDistinctKeys{newSound()} },
		[]string{"SharersReleasedInOneBulkRemoveTheRecord"}},
}

// bulkByKey removes every holder of the key.
type bulkByKey struct{ sound }

func (s bulkByKey) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	answers := make([]store.Ended, len(batch))
	for i, e := range batch {
		s.remove(e.Key)
		answers[i].Wanted, answers[i].Err = s.Store.Release(ctx, e.Ref, e.Keep)
	}
	return answers
}

type bulkThatForgetsWhoWaits struct{ sound }

func (s bulkThatForgetsWhoWaits) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	answers := s.Store.ReleaseMany(ctx, batch)
	for i := range answers {
		answers[i].Wanted = false
	}
	return answers
}

type bulkOutOfOrder struct{ sound }

func (s bulkOutOfOrder) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	answers := s.Store.ReleaseMany(ctx, batch)
	slices.Reverse(answers)
	return answers
}

type bulkThatIgnoresKeep struct{ sound }

func (s bulkThatIgnoresKeep) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Keep = 0
	}
	return s.Store.ReleaseMany(ctx, batch)
}

// bulkCutShort releases a hundred at most, and says that all are.
type bulkCutShort struct{ sound }

func (s bulkCutShort) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	answers := s.Store.ReleaseMany(ctx, batch[:min(100, len(batch))])
	return append(answers, make([]store.Ended, len(batch)-len(answers))...)
}

// bulkOfDistinctKeys releases one holder of each key.
type bulkOfDistinctKeys struct{ sound }

func (s bulkOfDistinctKeys) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	seen, answers := map[string]bool{}, make([]store.Ended, len(batch))
	for i, e := range batch {
		if !seen[e.Key] {
			answers[i].Wanted, answers[i].Err = s.Store.Release(ctx, e.Ref, e.Keep)
		}
		seen[e.Key] = true
	}
	return answers
}
