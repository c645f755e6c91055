package storetest

import (
	"context"
	"slices"

	"github.com/mongolock/mongolock/store"
)

// brokenBulks are stores that mishandle many releases at once.
var brokenBulks = []broken{
	{"BulkOutOfOrder", func() store.Store { return bulkOutOfOrder{newSound()} },
		[]string{"ABulkAnswersEachReleaseInItsOrder"}},
	{"BulkCutShort", func() store.Store { return bulkCutShort{newSound()} },
		[]string{"ABulkOfReleasesCanBeEmptyOrFull"}},
	{"BulkOfDistinctKeys", func() store.Store { return bulkOfDistinctKeys{newSound()} },
		[]string{"SharersReleasedInOneBulkRemoveTheRecord"}},
	{"BulkThatFreesTheWholeKey", func() store.Store { return bulkThatFreesTheWholeKey{newSound()} },
		[]string{"ABulkOfSharersLeavesTheOthersAndTheLine"}},
}

type bulkOutOfOrder struct{ sound }

func (s bulkOutOfOrder) Release(ctx context.Context, batch []store.Ending) []store.Ended {
	answers := s.Store.Release(ctx, batch)
	slices.Reverse(answers)
	return answers
}

// bulkCutShort releases a hundred at most, and says that all are.
type bulkCutShort struct{ sound }

func (s bulkCutShort) Release(ctx context.Context, batch []store.Ending) []store.Ended {
	answers := s.Store.Release(ctx, batch[:min(100, len(batch))])
	return append(answers, make([]store.Ended, len(batch)-len(answers))...)
}

// bulkOfDistinctKeys releases one holder of each key.
type bulkOfDistinctKeys struct{ sound }

func (s bulkOfDistinctKeys) Release(_ context.Context, batch []store.Ending) []store.Ended {
	seen := map[string]bool{}
	return eachRelease(batch, func(e store.Ending) store.Ended {
		if seen[e.Key] {
			return store.Ended{}
		}
		seen[e.Key] = true
		return s.end(e)
	})
}

// bulkThatFreesTheWholeKey releases all holders of a key that has several entries.
type bulkThatFreesTheWholeKey struct{ sound }

func (s bulkThatFreesTheWholeKey) Release(ctx context.Context, batch []store.Ending) []store.Ended {
	answers := s.Store.Release(ctx, batch)
	for i, e := range batch {
		if i > 0 && e.Key == batch[i-1].Key {
			s.others(store.Ref{Key: e.Key}, s.drop)
		}
	}
	return answers
}
