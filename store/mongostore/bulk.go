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
	b := s.steps.BeginBulk(ctx, batch, knownMode, has)
	b.Take(func(r store.Ref) ([]bson.E, bson.D) { return append(held(r), unawaited), nil },
		func(r store.Ref) ([]bson.E, bson.D) { return held(r), s.dropping(r) })
	b.Keep(s.laterRelease)
	exclusive := func(i int) bool { return batch[i].Mode == store.Exclusive }
	s.lastMany(b, slices.DeleteFunc(append(b.Gone, b.Held...), exclusive)) // those that had left before perhaps did not delete it
	return b.End()
}

// lastMany deletes the documents that some entries left, if they have no holders any more and nobody
// waits. The others stay, as after a single leave.
func (s *Store) lastMany(b *mongolease.Bulk[record, int64], which []int) {
	images, err := b.Find(which)
	var empty []mongo.WriteModel
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
		if seen[image.key] = true; len(image.Line) == 0 {
			empty = append(empty, s.steps.Deletion(mongolease.Last, ours(image.key, unheld, unawaited)))
		}
	}
	_, _, _ = s.base.Bulk(b.Ctx, b.Coll, empty) // a document that stays because this fails blocks no claim
}
