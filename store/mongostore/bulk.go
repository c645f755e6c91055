package mongostore

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// ReleaseMany releases holders with two commands: one find, which shows the waiters, and one
// bulk, which deletes the documents of exclusive holders. Holders of shared keys leave first;
// then a find and a bulk delete the documents that have no holders any more.
func (s *Store) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	has := func(r store.Ref, seen record) bool {
		_, holds := seen.Holder(r.ID)
		return holds && seen.mode == r.Mode
	}
	deletion := func(r store.Ref) ([]bson.E, bson.D) { return held(r), nil }
	exclusive := func(i int) bool { return batch[i].Mode == store.Exclusive }
	begun, which := s.steps.BeginBulk(ctx, batch, knownMode, has)
	b := bulk{begun, s}
	sharers := slices.DeleteFunc(slices.Clone(which.Held), exclusive)
	b.Take(slices.DeleteFunc(which.Held, func(i int) bool { return !exclusive(i) }), deletion)
	b.Keep(which.Kept, s.laterRelease)
	b.Write(sharers, func(i int) mongo.WriteModel {
		filter, update := leaving(batch[i].Ref)
		return s.steps.Model(mongolease.Leave, filter, update)
	})
	b.last(append(slices.DeleteFunc(which.Gone, exclusive), sharers...)) // those that had left before perhaps did not delete it
	return b.End()
}

// A bulk is many releases that are under way.
type bulk struct {
	*mongolease.Bulk[record, int64]
	store *Store
}

// last deletes the documents that some entries left, if they have no holders any more. A
// document with a writer's word stays, as after a single leave.
func (b bulk) last(which []int) {
	images, err := b.Find(which)
	var empty []record
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
			b.Answers[i].Wanted = b.Answers[i].Wanted || image.Wanted(b.Now)
		}
		if images[i].Found() && !seen[image.key] && image.Foreign() == nil && image.mode != store.Exclusive && len(image.Holders) == 0 {
			seen[image.key] = true
			empty = append(empty, image)
		}
	}
	now := b.Steps.Base.Now()
	var models, stay []mongo.WriteModel
	for _, image := range empty {
		named := bson.E{Key: fieldRev, Value: image.rev}
		switch {
		case image.exclusiveWanted.After(now.Earliest):
			stay = append(stay, b.Steps.Model(mongolease.Last, ours(image.key, named), bson.D{
				{Key: "$set", Value: bson.D{{Key: fieldExpireAt, Value: mongobase.Date(now.Earliest)}}}, stampAt,
			}))
		case image.Wanted(b.Now):
			models = append(models, b.Steps.Deletion(mongolease.Last, ours(image.key, noWriter(named, now)...)))
		default:
			models = append(models, b.Steps.Deletion(mongolease.Last, ours(image.key, append(layout{}.Unworded(b.Now), named)...)))
		}
	}
	_, _, _ = b.Send(stay) // a document that stays because this fails blocks no claim
	if done, _, err := b.Send(models); err == nil && done < len(models) {
		b.lastAgain(which, seen)
	}
}

// lastAgain ends, one by one, the few documents in which a word was left after they were found
// empty.
func (b bulk) lastAgain(which []int, empty map[string]bool) {
	images, err := b.Find(which)
	if err != nil {
		return
	}
	for _, i := range which {
		image := images[i].Record
		if !empty[image.key] || len(image.Holders) > 0 {
			continue
		}
		b.store.last(b.Ctx, image.key, &image, b.Coll)
		b.Answers[i].Wanted = b.Answers[i].Err == nil && image.Wanted(b.Now)
	}
}
