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

// path names a field of the lock.
func (s *docStore) path(field string) string { return s.field + "." + field }

// free is the condition that nobody holds a document: it has no lock, or one without a
// holder, or one whose holder has run out. A foreign field in the lock's place matches
// none of these.
func (s *docStore) free(earliest time.Time) bson.E {
	ours := bson.E{Key: s.path(fieldMark), Value: shape}
	return bson.E{Key: "$or", Value: bson.A{
		bson.D{lacks(s.field)},
		bson.D{ours, lacks(s.path(fieldID))},
		bson.D{ours, {Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$lte", Value: date(earliest)}}}},
	}}
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
				bson.D{
					{Key: s.path(fieldMark), Value: shape},
					{Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$lte", Value: date(earliest)}}},
				},
			}},
		}}},
	}
}

// claimableOf adds claimable to a filter. If the two name different fields they stand
// side by side, so that even a simple planner finds the index.
func (s *docStore) claimableOf(filter bson.Raw, earliest time.Time) bson.D {
	more := s.claimable(earliest)
	var both bson.D
	if err := bson.Unmarshal(filter, &both); err != nil || slices.ContainsFunc(both, func(f bson.E) bool {
		return f.Key == more[0].Key || f.Key == more[1].Key
	}) {
		return bson.D{{Key: "$and", Value: bson.A{filter, more}}}
	}
	return append(both, more...)
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
