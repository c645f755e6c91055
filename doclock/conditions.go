package doclock

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongoerr"
)

// stampPath names a field that the server's clock writes. It is a field of the lock; on
// FerretDB, whose $currentDate writes only top-level fields, it stands beside the lock.
func (s *docStore) stampPath(field string) string {
	if s.flat.Load() {
		return beside(s.field, field)
	}
	return s.path(field)
}

func beside(lock, field string) string { return lock + "_" + field }

// noPath reports whether a server refused to write its clock into the lock.
func noPath(err error) bool {
	return mongoerr.HasCode(err, 2) && strings.Contains(err.Error(), "must not contain '.'")
}

// noFields reports whether a server refused to answer a part of a document.
func noFields(err error) bool {
	const notImplemented = 238
	return mongoerr.HasCode(err, notImplemented) && strings.Contains(err.Error(), "fields")
}

// path names a field of the lock.
func (s *docStore) path(field string) string { return s.field + "." + field }

// free is the condition that nobody holds a document: it has no lock, or one without a
// holder, or one whose holder has run out. A foreign field in the lock's place matches
// none of these.
func (s *docStore) free(earliest time.Time) bson.E {
	return bson.E{Key: "$or", Value: bson.A{
		bson.D{lacks(s.field)},
		append(s.ours(), lacks(s.path(fieldID))),
		append(s.ours(), bson.E{Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$lte", Value: date(earliest)}}}),
	}}
}

// ours is the condition that the document has a lock of this package. A path reaches
// into the documents of an array too: an array in the lock's place is foreign, whatever
// is in it.
func (s *docStore) ours() bson.D {
	return bson.D{{Key: s.path(fieldMark), Value: shape}, lacks(s.path("0"))}
}

// claimable is the condition that a document is free, not done and not put off. The
// conditions that an index can answer stand alone, though the others imply some of them.
// All but the mark of completion stand in an $and, where they keep no planner from using
// the index.
func (s *docStore) claimable(earliest time.Time) bson.D {
	past := func(field string) bson.E {
		return bson.E{Key: s.path(field), Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: date(earliest)}}}}}
	}
	return bson.D{
		{Key: s.path(fieldDone), Value: nil},
		{Key: "$and", Value: bson.A{bson.D{
			past(fieldReadyAt),
			past(fieldExpireAt),
			{Key: "$or", Value: bson.A{
				bson.D{lacks(s.field)},
				append(s.ours(), bson.E{Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$lte", Value: date(earliest)}}}),
			}},
		}}},
	}
}

// claimableOf adds claimable to a filter.
func (s *docStore) claimableOf(filter bson.Raw, earliest time.Time) bson.D {
	return both(filter, s.claimable(earliest))
}

// foreignOf is the filter of those of a filter's documents that claims pass over because
// something foreign stands in the lock's place. It asks for the mark of completion first:
// so the claim's index passes over all that is completed.
func (s *docStore) foreignOf(filter bson.Raw) bson.D {
	return both(filter, bson.D{
		{Key: s.path(fieldDone), Value: nil},
		{Key: "$and", Value: bson.A{bson.D{
			{Key: s.field, Value: bson.D{{Key: "$exists", Value: true}}},
			{Key: "$or", Value: bson.A{
				bson.D{{Key: s.path(fieldMark), Value: bson.D{{Key: "$ne", Value: shape}}}},
				bson.D{{Key: s.path("0"), Value: bson.D{{Key: "$exists", Value: true}}}},
			}},
		}}},
	})
}

// both adds conditions to a filter. If the two name different fields they stand side by
// side, so that even a simple planner finds the index.
func both(filter bson.Raw, more bson.D) bson.D {
	var fields bson.D
	if err := bson.Unmarshal(filter, &fields); err != nil || slices.ContainsFunc(fields, func(f bson.E) bool {
		return slices.ContainsFunc(more, func(m bson.E) bool { return m.Key == f.Key })
	}) {
		return bson.D{{Key: "$and", Value: bson.A{filter, more}}}
	}
	return append(fields, more...)
}

// named is the condition that the document names an acquisition, run out or not.
func (s *docStore) named(id string) []bson.E {
	return []bson.E{{Key: s.path(fieldMark), Value: shape}, {Key: s.path(fieldID), Value: id}}
}

// alive is the condition that an acquisition can still save.
func (s *docStore) alive(id string) []bson.E {
	return append(s.named(id), s.living(s.base.Now().Earliest)...)
}

// living is the condition that the holder, whichever it is, has not run out, was not
// broken and has not released.
func (s *docStore) living(earliest time.Time) []bson.E {
	return append([]bson.E{{Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$gt", Value: date(earliest)}}}}, s.unbroken()...)
}

func (s *docStore) unbroken() []bson.E {
	return []bson.E{lacks(s.path(fieldBroken)), lacks(s.path(fieldReleased))}
}

// newer is the condition that no later save of the same holder was written.
func (s *docStore) newer(save int) []bson.E {
	return []bson.E{{Key: s.path(fieldSaves), Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: save}}}}}}
}

func lacks(path string) bson.E {
	return bson.E{Key: path, Value: bson.D{{Key: "$exists", Value: false}}}
}
