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
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// Look reads documents with one find, whatever their number.
func (s *docStore) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	return s.steps.Look(ctx, keys)
}

// Find reads the lock of one document.
func (s *docStore) Find(ctx context.Context, r store.Ref) (reply, error) {
	fields, err := s.Where(r)
	if err != nil {
		return reply{}, err
	}
	return s.find(ctx, fields)
}

// FindMany reads the documents of some refs, in their order. A document that the server
// finds by other values than those of its filter (by a collation) is read alone.
func (s *docStore) FindMany(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]reply, error) {
	images := make([]reply, len(refs))
	wheres := make([]bson.D, len(refs))
	for i, r := range refs {
		var err error
		if wheres[i], err = s.Where(r); err != nil {
			return nil, err
		}
	}
	alone := coll == s.base.Soft // by another read concern, it counts as not found
	if len(refs) > 1 || !alone {
		if err := s.findAtOnce(ctx, coll, wheres, images); err != nil {
			return nil, err
		}
	}
	if left := missing(wheres, images); alone && len(left) > 1 { // one find tells whether any of them is there
		if one, err := s.find(ctx, bson.D{{Key: "$or", Value: left}}); err != nil || !one.Found() {
			return images, err
		}
	}
	for i := range images {
		if alone && !images[i].Found() {
			var err error
			if images[i], err = s.find(ctx, wheres[i]); err != nil {
				return nil, err
			}
		}
	}
	return images, nil
}

// missing are the filters of the documents that were not found.
func missing(wheres []bson.D, images []reply) (left bson.A) {
	for i := range images {
		if !images[i].Found() {
			left = append(left, wheres[i])
		}
	}
	return left
}

func (s *docStore) findAtOnce(ctx context.Context, coll *mongo.Collection, wheres []bson.D, images []reply) error {
	fields := bson.M{string(s.lock): 1} // and the fields that name the document
	for _, w := range wheres {
		for _, f := range w {
			fields[f.Key] = 1
		}
	}
	cursor, err := s.base.FindMany(ctx, coll, bson.D{{Key: "$or", Value: missing(wheres, images)}},
		options.Find().SetProjection(fields).SetBatchSize(int32(min(len(wheres)+1, 10_000))))
	if err != nil {
		return err
	}
	defer cursor.Close(ctx)
	for cursor.Next(ctx) {
		for i, w := range wheres {
			if !images[i].Found() && matches(cursor.Current(), w) {
				images[i] = s.read(mongobase.Reply{Image: slices.Clone(cursor.Current())})
			}
		}
	}
	return cursor.Err()
}

// List reads the documents that have a holder, live or run out. It scans the whole
// collection.
func (s *docStore) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	find := func(ctx context.Context) (*mongobase.Cursor, error) {
		return s.base.FindMany(ctx, s.base.Soft, bson.D{{Key: s.path(fieldMark), Value: shape}, mongolease.Exists(s.path(fieldID))},
			options.Find().SetProjection(bson.D{{Key: string(s.lock), Value: 1}}))
	}
	read := func(doc bson.Raw) (string, record) {
		key, _ := textOf(ID(doc.Lookup("_id"))) // without a key it is not listed
		return key, readLock(doc, string(s.lock))
	}
	return func(yield func(store.Status, error) bool) {
		var held []store.Status
		for status, err := range s.steps.List(ctx, prefix, find, read) {
			if err != nil {
				yield(status, err)
				return
			}
			held = append(held, status)
		}
		slices.SortFunc(held, func(a, b store.Status) int { return strings.Compare(a.Key, b.Key) })
		for _, status := range held {
			if !yield(status, nil) {
				return
			}
		}
	}
}
