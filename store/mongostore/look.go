package mongostore

import (
	"context"
	"iter"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/store"
)

// Look reads keys with one find, however many there are.
func (s *Store) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	return s.steps.Look(ctx, keys)
}

// listBatch is how many documents of a list are in memory at a time. By default the server
// sends 16 MB at once.
const listBatch = 500

// List reads the keys that begin with prefix in the order of _id, which for strings is the
// order of their bytes.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return s.steps.List(ctx, prefix, func(ctx context.Context) (*mongo.Cursor, error) {
		return s.base.Soft.Find(ctx,
			bson.D{{Key: "_id", Value: prefixRange(prefix)}, {Key: fieldMark, Value: shape}},
			options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(listBatch))
	}, func(doc bson.Raw) (string, record) {
		r := readRecord(doc)
		return r.key, r
	})
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
