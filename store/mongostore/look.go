package mongostore

import (
	"context"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Look reads keys with one find, however many there are.
func (s *Store) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx = command.Bare(ctx)
	err := s.base.ReadFresh(ctx)
	var images []lease.Image
	if err == nil {
		images, err = s.read(ctx, s.base.Soft, keys)
	}
	if err != nil {
		return nil, server.NotApplied(err)
	}
	return s.steps.Looked(keys, images)
}

// read reads the documents of some keys, in their order, under the read concern of a collection.
func (s *Store) read(ctx context.Context, from *mongo.Collection, keys []string) ([]lease.Image, error) {
	if len(keys) == 1 && from == s.base.Soft {
		image, err := s.steps.Find(ctx, named(keys[0]))
		return []lease.Image{image}, err
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
	found := make(map[string]lease.Image, len(distinct))
	err := s.base.FindAll(ctx, from, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: distinct}}}}, len(distinct), func(document bson.Raw) {
		d := s.steps.Read(document)
		found[d.Key] = lease.Image{Reply: command.Reply{Image: document}, Document: d}
	})
	images := make([]lease.Image, len(keys))
	for i, key := range keys {
		images[i] = found[key]
	}
	return images, err
}

// listBatch is how many documents of a list are in memory at a time. By default the server
// sends 16 MB at once.
const listBatch = 500

// List reads the keys that begin with prefix in the order of _id, which for strings is the
// order of their bytes.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		filter := bson.D{{Key: "_id", Value: prefixRange(prefix)}, {Key: fieldMark, Value: shape}}
		for image, err := range s.steps.List(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(listBatch)) {
			if err != nil {
				yield(store.Status{}, err)
				return
			}
			if key := image.Key; key != "" && strings.HasPrefix(key, prefix) && !yield(s.steps.Listed(key, image.Document), nil) {
				return
			}
		}
	}
}

// prefixRange returns the bounds of the strings that begin with prefix: from the prefix up to
// the next string that does not begin with it, which is the prefix with its last rune raised.
// (A regular expression would have to be escaped, and reads the whole index if it is not.)
func prefixRange(prefix string) bson.D {
	within := bson.D{{Key: "$gte", Value: prefix}}
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		if last == utf8.RuneError || last == utf8.MaxRune {
			continue
		}
		next := last + 1
		if next == 0xD800 {
			next = 0xE000 // UTF-8 has no surrogates
		}
		return append(within, bson.E{Key: "$lt", Value: prefix + string(next)})
	}
	return within
}
