package doclock

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongoerr"
)

// stampPath names a field of the lock that the server's clock writes. FerretDB's can
// write only the document's own fields: there they stand beside the lock.
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

// free is the condition that nobody holds a document: no lock at all, one that has
// no holder, or one whose holder has run out. Something else in the lock's place
// matches none of them.
func (s *docStore) free(earliest time.Time) bson.E {
	ours := bson.E{Key: s.path(fieldMark), Value: shape}
	return bson.E{Key: "$or", Value: bson.A{
		bson.D{lacks(s.field)},
		bson.D{ours, lacks(s.path(fieldID))},
		bson.D{ours, {Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$lte", Value: date(earliest)}}}},
	}}
}

// claimable is free for one of many: also not done, and not put off. What an index
// can answer is asked by itself, though the rest implies some of it; and all but the
// mark of what is done is in an $and, where it keeps no planner from the index.
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

// claimableOf is what of a filter's documents is claimable. Side by side, if they ask
// for different things, they say to the simplest planner which index is theirs.
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

// named is the condition that an acquisition is there, run out or not.
func (s *docStore) named(id string) []bson.E {
	if s.broken.byKeyAlone {
		return nil
	}
	return []bson.E{{Key: s.path(fieldMark), Value: shape}, {Key: s.path(fieldID), Value: id}}
}

// alive is the condition that it can still be renewed, saved by or transferred.
func (s *docStore) alive(id string) []bson.E {
	if s.broken.byKeyAlone {
		return nil
	}
	return append(s.named(id), s.living()...)
}

// living is the condition that the holder, whoever it is, was not declared dead.
func (s *docStore) living() []bson.E {
	return []bson.E{
		{Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$gt", Value: date(s.base.Now().Earliest)}}},
		lacks(s.path(fieldBroken)), lacks(s.path(fieldReleased)),
	}
}

// newer is the condition that no later save of the same holder was written.
func (s *docStore) newer(save int) []bson.E {
	if s.broken.anyOrder {
		return nil
	}
	return []bson.E{{Key: s.path(fieldSaves), Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: save}}}}}}
}

func lacks(path string) bson.E {
	return bson.E{Key: path, Value: bson.D{{Key: "$exists", Value: false}}}
}
