package doclock

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// path returns the path of a field of the lock.
func (s *docStore) path(field string) string { return s.lock.Path(field) }

// free is the condition that a document has no holder, and that nobody waits for it: it has no
// lock, or one without a holder and a line. A foreign field in the lock's place matches neither: nor does one whose line
// is no list, in which a claim would not find itself.
func (s *docStore) free() bson.E {
	return s.lacking(lease.Lacks(s.path(fieldID)), s.lock.Unawaited(), s.lock.Lined())
}

// unheld is free whoever waits, for a document that a look has read.
func (s *docStore) unheld() bson.E { return s.lacking(lease.Lacks(s.path(fieldID))) }

func (s *docStore) lacking(what ...bson.E) bson.E {
	return bson.E{Key: "$or", Value: bson.A{bson.D{lease.Lacks(string(s.lock))}, append(s.ours(), what...)}}
}

// ours is the condition that the document has a lock of this package. A path reaches into the
// documents of an array too: an array in the lock's place is foreign, whatever is in it.
func (s *docStore) ours() bson.D {
	return bson.D{{Key: s.path(fieldVersion), Value: shape}, lease.Lacks(s.path("0"))}
}

// held is the condition that a lock of this package has a holder: its ID is a text that is not empty.
func (s *docStore) held() bson.E {
	return bson.E{Key: s.path(fieldID), Value: bson.D{{Key: "$gt", Value: ""}}}
}

// ready is the condition that a document is not done and not put off.
func (s *docStore) ready(now time.Time) bson.D {
	return bson.D{s.notDone(), s.past(fieldReadyAt, now)}
}

// notDone is the condition that a document was not completed. An operator may have written false.
func (s *docStore) notDone() bson.E {
	return bson.E{Key: s.path(fieldDone), Value: bson.D{{Key: "$in", Value: notDone}}}
}

var notDone = bson.A{nil, false}

// past is the condition that a date is not later than now, or is not there.
func (s *docStore) past(field string, now time.Time) bson.E {
	return bson.E{Key: s.path(field), Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: server.Date(now)}}}}}
}

// claimableOf returns the filter of those of a filter's documents that may be worth a claim:
// they are ready, and free or with a holder whose end is not later than until. The conditions
// that an index can answer stand alone. All but the mark of completion stand in an $and, where
// they do not keep a planner from using the index.
func (s *docStore) claimableOf(filter bson.Raw, now, until time.Time) bson.D {
	return both(filter, bson.D{
		s.notDone(),
		{Key: "$and", Value: bson.A{bson.D{
			s.past(fieldReadyAt, now),
			s.past(fieldExpireAt, until),
			{Key: "$or", Value: bson.A{bson.D{lease.Lacks(string(s.lock))}, s.ours()}},
		}}},
	})
}

// foreignOf returns the filter of those of a filter's documents that claims pass over because
// foreign content stands in the lock's place. It asks for the mark of completion first, and for what is not put
// off: so the claim's index skips all others.
func (s *docStore) foreignOf(filter bson.Raw, now time.Time) bson.D {
	return both(filter, bson.D{
		s.notDone(),
		{Key: "$and", Value: bson.A{bson.D{
			s.past(fieldReadyAt, now),
			lease.Exists(string(s.lock)),
			{Key: "$or", Value: bson.A{
				bson.D{{Key: s.path(fieldVersion), Value: bson.D{{Key: "$ne", Value: shape}}}},
				bson.D{lease.Exists(s.path("0"))},
				bson.D{{Key: s.path(fieldID), Value: bson.D{{Key: "$exists", Value: true}, {Key: "$not", Value: s.held().Value}}}}, // no text
			}},
		}}},
	})
}

// both adds conditions to a filter. If the two name different fields they stand side by side,
// so that even a simple planner finds the index.
func both(filter bson.Raw, more bson.D) bson.D {
	var fields bson.D
	if err := bson.Unmarshal(filter, &fields); err != nil || slices.ContainsFunc(fields, func(f bson.E) bool {
		return slices.ContainsFunc(more, func(m bson.E) bool { return m.Key == f.Key })
	}) {
		return bson.D{{Key: "$and", Value: bson.A{filter, more}}}
	}
	return append(fields, more...)
}

// identified is the condition that the document names an acquisition, expired or not.
func (s *docStore) identified(id any) []bson.E {
	return []bson.E{{Key: s.path(fieldVersion), Value: shape}, {Key: s.path(fieldID), Value: id}}
}

// alive is the condition that an acquisition can still save.
func (s *docStore) alive(id string) []bson.E { return s.steps.Alive(id, s.base.ClockBasis()) }

// newer is the condition that no later save of the same holder was written.
func (s *docStore) newer(save int) bson.E {
	return bson.E{Key: s.path(fieldSaves), Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: save}}}}}
}
