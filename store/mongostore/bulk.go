package mongostore

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// releaseMany releases holders with two commands: one find, which shows who waits, and one bulk,
// which deletes the documents of exclusive holders for which nobody waits. The others leave their
// documents; then a find and a bulk delete those that have no holders any more.
func (s *Store) releaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	has := func(r store.Ref, seen record) bool {
		_, holds := seen.Holder(r.ID)
		return holds && seen.mode == r.Mode
	}
	sharer := func(i int) bool { return batch[i].Mode != store.Exclusive }
	begun, which := s.steps.BeginBulk(ctx, batch, knownMode, has)
	b := bulk{begun, s}
	sharers := slices.DeleteFunc(slices.Clone(which.Held), func(i int) bool { return !sharer(i) })
	b.Take(slices.DeleteFunc(which.Held, sharer),
		func(r store.Ref) ([]bson.E, bson.D) { return append(held(r), unawaited), nil },
		s.leaving)
	b.Keep(which.Kept, s.laterRelease)
	b.Write(sharers, func(i int) mongo.WriteModel {
		conditions, update := s.leaving(batch[i].Ref)
		return s.steps.Model(mongolease.Leave, append(bson.D{{Key: "_id", Value: batch[i].Key}}, conditions...), update)
	})
	b.last(append(slices.DeleteFunc(which.Gone, func(i int) bool { return !sharer(i) }), sharers...)) // those that had left before perhaps did not delete it
	return b.End()
}

// leaving is the change of a holder that leaves a document which stays.
func (s *Store) leaving(r store.Ref) ([]bson.E, bson.D) { return held(r), s.dropping(r) }

// A bulk is many releases that are under way.
type bulk struct {
	*mongolease.Bulk[record, int64]
	store *Store
}

// last deletes the documents that some entries left, if they have no holders any more and nobody
// waits. The others stay, as after a single leave.
func (b bulk) last(which []int) {
	images, err := b.Find(which)
	var empty, awaited []mongo.WriteModel
	seen := map[string]bool{}
	for _, i := range which {
		image := images[i].Record
		switch gone := errors.Is(b.Answers[i].Err, store.ErrGone); {
		case b.Answers[i].Err != nil && !gone:
			continue
		case err != nil:
			b.Answers[i].Err = err
			continue
		case !gone:
			b.Saw(i, image)
		}
		if !images[i].Found() || seen[image.key] || image.Foreign() != nil || len(image.Holders) > 0 {
			continue
		}
		seen[image.key] = true
		switch {
		case len(image.Line) == 0:
			empty = append(empty, b.Steps.Deletion(mongolease.Last, ours(image.key, unheld, unawaited)))
		case !image.expireAt.Before(far):
			awaited = append(awaited, b.Steps.Model(mongolease.Last, ours(image.key, unheld), bson.D{b.store.awaited(), stampAt}))
		}
	}
	_, _, _ = b.Send(empty) // a document that stays because this fails blocks no claim
	_, _, _ = b.Send(awaited)
}
