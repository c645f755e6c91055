package doclock

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/store"
)

// Look reads documents with one find, however many there are.
func (s *docStore) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	return s.steps.Look(ctx, keys)
}

// Read reads the lock of a document.
func (s *docStore) Read(document bson.Raw) record { return readLock(document, string(s.lock)) }

// FindMany reads the documents of some refs, in their order. If the server finds a document by
// other values than those of its filter (because of a collation), the document is read alone.
func (s *docStore) FindMany(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]reply, error) {
	images := make([]reply, len(refs))
	filters := make([]bson.D, len(refs))
	for i, r := range refs {
		var err error
		if filters[i], err = s.Name(r); err != nil {
			return nil, err
		}
	}
	if err := s.findAtOnce(ctx, coll, filters, images); err != nil || coll != s.base.Soft {
		return images, err // by another read concern, one that is left counts as not found
	}
	var left bson.A
	for i, image := range images {
		if !image.Found() {
			left = append(left, filters[i])
		}
	}
	if len(left) > 1 { // one find tells whether any of them exists
		if one, err := s.steps.FindOne(ctx, bson.D{{Key: "$or", Value: left}}); err != nil || !one.Found() {
			return images, err
		}
	}
	for i := range images {
		if !images[i].Found() {
			var err error
			if images[i], err = s.steps.FindOne(ctx, filters[i]); err != nil {
				return nil, err
			}
		}
	}
	return images, nil
}

// findAtOnce reads the documents that filters name, each by values of some fields. It matches
// the documents that the server finds to the filters by these values.
func (s *docStore) findAtOnce(ctx context.Context, coll *mongo.Collection, filters []bson.D, images []reply) error {
	read := bson.M{string(s.lock): 1} // and the fields that name the documents
	byFields, which := map[string]bson.D{}, map[string][]int{}
	var either, ids bson.A
	for i, f := range filters {
		text, err := textOf(f)
		if err != nil {
			return err
		}
		either, byFields[names(f)], which[text] = append(either, f), f, append(which[text], i)
		for _, e := range f {
			read[e.Key] = 1
		}
		if names(f) == "_id" {
			ids = append(ids, f[0].Value)
		}
	}
	maps.DeleteFunc(read, func(path string, _ any) bool { return hasParent(path, read) }) // which a server refuses
	filter := bson.D{{Key: "$or", Value: either}}
	if len(ids) == len(filters) { // in most cases: one look-up in the index, and not as many as documents
		filter = bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	}
	return s.base.FindAll(ctx, coll, filter, len(filters), func(document bson.Raw) {
		for _, fields := range byFields {
			text, err := textOf(valuesOf(document, fields))
			if err != nil {
				continue
			}
			for _, i := range which[text] {
				images[i] = reply{Reply: command.Reply{Image: document}, Record: s.Read(document)}
			}
		}
	}, options.Find().SetProjection(read))
}

// hasParent reports whether those to read have a field that contains the path.
func hasParent(path string, read bson.M) bool {
	for i, c := range path {
		if _, is := read[path[:i]]; is && c == '.' {
			return true
		}
	}
	return false
}

// List reads the documents that have a holder, live or expired, or for which somebody waits. It
// scans the whole collection.
func (s *docStore) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	find := func(ctx context.Context) (*mongo.Cursor, error) {
		return s.base.Soft.Find(ctx, bson.D{{Key: s.path(fieldMark), Value: shape},
			{Key: "$or", Value: bson.A{bson.D{lease.Exists(s.path(fieldID))}, bson.D{lease.Exists(s.path(lease.FieldLine) + ".0")}}}},
			options.Find().SetProjection(bson.D{{Key: string(s.lock), Value: 1}}))
	}
	read := func(doc bson.Raw) (string, record) {
		key, _ := textOf(ID(doc.Lookup("_id"))) // a document without a key is not listed
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
