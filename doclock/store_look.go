package doclock

import (
	"context"
	"iter"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Look reads documents with one find, whatever their number.
func (s *docStore) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	return s.steps.Look(ctx, keys)
}

// images reads the documents of some refs, in their order. A document that the server
// finds by other values than those of its filter (by a collation) is read alone.
func (s *docStore) images(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]reply, error) {
	images := make([]reply, len(refs))
	wheres := make([]bson.D, len(refs))
	either := make(bson.A, len(refs))
	for i, r := range refs {
		fields, err := s.where(r)
		if err != nil {
			return nil, err
		}
		wheres[i], either[i] = fields, fields
	}
	if len(refs) > 1 || coll != s.base.Soft {
		if err := s.imagesAtOnce(ctx, coll, wheres, either, images); err != nil {
			return nil, err
		}
	}
	if coll != s.base.Soft {
		return images, nil // what cannot be told by its values is not found here
	}
	return images, s.imagesLeft(ctx, wheres, images)
}

// imagesLeft reads the documents that are still missing, one by one. If none of them is
// there, one find tells so.
func (s *docStore) imagesLeft(ctx context.Context, wheres []bson.D, images []reply) error {
	var left bson.A
	for i := range images {
		if !images[i].Found() {
			left = append(left, wheres[i])
		}
	}
	if len(left) > 1 {
		if one, err := s.find(ctx, bson.D{{Key: "$or", Value: left}}); err != nil || !one.Found() {
			return err
		}
	}
	for i := range images {
		if images[i].Found() {
			continue
		}
		image, err := s.find(ctx, wheres[i])
		if err != nil {
			return err
		}
		images[i] = image
	}
	return nil
}

func (s *docStore) imagesAtOnce(ctx context.Context, coll *mongo.Collection, wheres []bson.D, either bson.A, images []reply) error {
	fields := bson.D{{Key: s.field, Value: 1}} // and the fields that name the document
	for _, w := range wheres {
		for _, f := range w {
			if !slices.ContainsFunc(fields, func(e bson.E) bool { return e.Key == f.Key }) {
				fields = append(fields, bson.E{Key: f.Key, Value: 1})
			}
		}
	}
	cursor, err := coll.Find(ctx, bson.D{{Key: "$or", Value: either}},
		options.Find().SetProjection(fields).SetBatchSize(int32(min(len(wheres)+1, 10_000))))
	if err != nil {
		return err
	}
	defer cursor.Close(ctx)
	for cursor.Next(ctx) {
		for i, w := range wheres {
			if !images[i].Found() && matches(cursor.Current, w) {
				images[i] = s.read(mongobase.Reply{Image: slices.Clone(cursor.Current)})
			}
		}
	}
	return cursor.Err()
}

// List reads the documents that have a holder, live or run out. It scans the whole
// collection.
func (s *docStore) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		ctx := mongobase.Bare(ctx)
		held, err := s.list(ctx, prefix)
		if err != nil {
			yield(store.Status{}, mongoerr.NotApplied(err))
			return
		}
		for _, status := range held {
			if !yield(status, nil) {
				return
			}
		}
	}
}

func (s *docStore) list(ctx context.Context, prefix string) ([]store.Status, error) {
	if _, err := s.base.ReadFresh(ctx); err != nil {
		return nil, err
	}
	cursor, err := s.base.Soft.Find(ctx, bson.D{
		{Key: s.path(fieldMark), Value: shape},
		{Key: s.path(fieldID), Value: bson.D{{Key: "$exists", Value: true}}},
	}, options.Find().SetProjection(bson.D{{Key: s.field, Value: 1}}))
	if err != nil {
		return nil, err
	}
	defer cursor.Close(ctx)
	var held []store.Status
	for cursor.Next(ctx) {
		rec := readLock(cursor.Current, s.field)
		key, err := textOf(ID(cursor.Current.Lookup("_id")))
		if err == nil && rec.foreign == "" && strings.HasPrefix(key, prefix) {
			held = append(held, rec.Status(key, s.base.Present()))
		}
	}
	slices.SortFunc(held, func(a, b store.Status) int { return strings.Compare(a.Key, b.Key) })
	return held, cursor.Err()
}
