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

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Look reads documents with one find, however many there are.
func (s *docStore) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx = server.Bare(ctx)
	if err := s.base.ReadFresh(ctx); err != nil {
		return nil, server.NotApplied(err)
	}
	names := make([]bson.D, len(keys))
	for i, key := range keys {
		var err error
		if names[i], err = s.name(store.Ref{Key: key}); err != nil {
			return nil, server.NotApplied(err)
		}
	}
	images, err := s.findMany(ctx, s.base.W1, names)
	if err != nil {
		return nil, server.NotApplied(err)
	}
	return s.steps.Looked(keys, images)
}

// findMany reads the documents that filters name, in their order, under the read concern of a
// collection. If the server finds a document by other values than those of its filter (because of a
// collation), the document is read alone.
func (s *docStore) findMany(ctx context.Context, coll *mongo.Collection, filters []bson.D) ([]lease.Image, error) {
	images := make([]lease.Image, len(filters))
	var left bson.A
	if len(filters) > 1 || coll != s.base.W1 {
		if err := s.findAtOnce(ctx, coll, filters, images); err != nil || coll != s.base.W1 {
			return images, err // by another read concern, one that is left counts as not found
		}
		for i, image := range images {
			if !image.Found() {
				left = append(left, filters[i])
			}
		}
	}
	if len(left) > 1 { // one find tells whether any of them exists
		if one, err := s.steps.Find(ctx, bson.D{{Key: "$or", Value: left}}); err != nil || !one.Found() {
			return images, err
		}
	}
	for i := range images {
		if !images[i].Found() {
			var err error
			if images[i], err = s.steps.Find(ctx, filters[i]); err != nil {
				return nil, err
			}
		}
	}
	return images, nil
}

// findAtOnce reads the documents that filters name, each by values of some fields. It matches
// the documents that the server finds to the filters by these values.
func (s *docStore) findAtOnce(ctx context.Context, coll *mongo.Collection, filters []bson.D, images []lease.Image) error {
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
				images[i] = lease.Image{Reply: server.Reply{Image: document}, Document: s.steps.Read(document)}
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
	filter := bson.D{{Key: s.path(fieldVersion), Value: shape},
		{Key: "$or", Value: bson.A{bson.D{lease.Exists(s.path(fieldID))}, bson.D{lease.Exists(s.path(lease.FieldLine) + ".0")}}}}
	return func(yield func(store.Status, error) bool) {
		var held []store.Status
		for image, err := range s.steps.List(ctx, filter) {
			if err != nil {
				yield(store.Status{}, err)
				return
			}
			key, err := textOf(ID(image.Image.Lookup("_id")))
			if err == nil && strings.HasPrefix(key, prefix) { // a document without a key is not listed
				held = append(held, s.steps.Listed(key, image.Document))
			}
		}
		slices.SortFunc(held, func(a, b store.Status) int { return strings.Compare(a.Key, b.Key) })
		for _, status := range held {
			if !yield(status, nil) {
				return
			}
		}
	}
}
