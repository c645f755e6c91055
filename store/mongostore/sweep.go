package mongostore

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// Sweep removes what dead sessions left: each holder by its ID and the beat that was judged, so
// that nothing else is touched.
func (s *Store) Sweep(ctx context.Context) (freed []string, err error) {
	ctx = mongobase.Bare(ctx)
	x := &s.sessions
	unsurveyed := x.survey(ctx) // what others met is swept all the same
	for _, id := range x.leftBy() {
		keys, all, err := s.sweep(ctx, id)
		freed = append(freed, keys...)
		if err != nil {
			return freed, mongoerr.Mark(err)
		}
		if all {
			_, err = x.steps.Remove(ctx, mongolease.Sweep, s.base.Soft, ourSession(id, bson.E{Key: fieldDead, Value: true}), readSession)
			if err != nil {
				return freed, mongoerr.Mark(err)
			}
			x.swept(id)
		}
	}
	return freed, unsurveyed
}

// sweepBatch is how many documents a sweep takes at a time.
const sweepBatch = 1000

// leftUnder returns the filter of the documents that may have holders of a session. The index
// on expireAt finds them: those with the session's own end, and all that several may keep.
func leftUnder(session string) bson.D {
	return bson.D{
		{Key: fieldMark, Value: shape},
		{Key: fieldExpireAt, Value: bson.D{{Key: "$in", Value: bson.A{farEnd(session), never}}}},
		{Key: "$or", Value: bson.A{bson.D{exclusively}, bson.D{{Key: fieldSessions, Value: bson.D{{Key: "$eq", Value: session}}}}}},
	}
}

// sweep removes the holders of one dead session whose own ends have passed too. all says that
// no holder of the session is left.
func (s *Store) sweep(ctx context.Context, session string) (freed []string, all bool, err error) {
	all = true
	after := any(bson.D{{Key: "$exists", Value: true}})
	for part := 0; ; part++ {
		var found []record
		sent := s.base.Clock.Now()
		err := s.base.FindAll(ctx, s.base.Soft, append(leftUnder(session), bson.E{Key: "_id", Value: after}), sweepBatch,
			func(doc bson.Raw) { found = append(found, readRecord(doc)) },
			options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(sweepBatch))
		if err != nil {
			return freed, false, err
		}
		var marks []mongobase.Mark
		for _, r := range found {
			for _, h := range r.Holders {
				if h.Session == session {
					marks = append(marks, h.Mark())
				}
			}
		}
		over, err := s.base.Judge(ctx, fmt.Sprint(unkey, "sweep ", session, " ", part), marks, sent, s.base.Clock.Now(), nil)
		if err != nil {
			return freed, false, err
		}
		keys, dropped, err := s.dropSwept(ctx, found, session, over)
		all = all && dropped && len(over) == len(marks)
		if freed = append(freed, keys...); err != nil {
			return freed, false, err
		}
		if len(found) < sweepBatch {
			return freed, all, nil
		}
		after = bson.D{{Key: "$gt", Value: found[len(found)-1].key}}
	}
}

// dropSwept removes holders from documents, each by its ID and by the beat that was judged: a
// holder that was renewed since, and perhaps came under another session, stays. So does one for
// whose key somebody has begun to wait: then all is false, and the next sweep finds the line.
func (s *Store) dropSwept(ctx context.Context, found []record, session string, over map[string]bool) (freed []string, all bool, err error) {
	var deletions, leaves []mongo.WriteModel
	var left []string
	for _, r := range found {
		if len(r.Holders) == 0 && len(r.Line) == 0 { // a sweep before this one was cut off
			left = append(left, r.key)
		}
		for _, h := range r.Holders {
			if h.Session != session || !over[h.ID] {
				continue
			}
			filter := append(ours(r.key, inMode(r.mode), holder(h.ID).Still(h)), r.under()...)
			if r.mode == store.Exclusive && len(r.Line) == 0 {
				deletions = append(deletions, s.steps.Deletion(mongolease.Sweep, append(filter, unawaited)))
			} else {
				leaves = append(leaves, s.steps.Model(mongolease.Sweep, filter, s.dropping(store.Ref{ID: h.ID, Mode: r.mode})))
				left = append(left, r.key)
			}
			if len(r.Line) > 0 {
				freed = append(freed, r.key)
			}
		}
	}
	done := 0
	for part := range slices.Chunk(deletions, sweepBatch) {
		n, _, err := s.base.Bulk(ctx, s.base.Soft, part)
		if done += n; err != nil {
			return freed, false, err
		}
	}
	for part := range slices.Chunk(leaves, sweepBatch) {
		if _, _, err := s.base.Bulk(ctx, s.base.Soft, part); err != nil {
			return freed, false, err
		}
	}
	for _, key := range slices.Compact(left) { // the last holder to go removes the document
		if _, err := s.finish(ctx, store.Ref{Key: key}, s.base.Soft); err != nil {
			return freed, false, err
		}
	}
	return freed, done == len(deletions), nil
}
