package schedule

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// mine matches the job's document while the run is still in its place.
func (r Ref) mine() bson.D {
	f := bson.D{{Key: "_id", Value: r.Job}, ours}
	if r.Shared {
		return append(f, bson.E{Key: "runs." + r.ID, Value: bson.D{{Key: "$exists", Value: true}}})
	}
	return append(f, bson.E{Key: "busy.id", Value: r.ID})
}

// Renew moves the expiry of the run, and of busy, by $max: a renewal that arrives late
// lowers nothing.
func (m *mongoStore) Renew(ctx context.Context, r Ref, ttl time.Duration) (time.Duration, error) {
	sent := m.base.Clock.Now()
	now, err := m.read(ctx)
	if err != nil {
		return 0, err
	}
	_, until := now.Expiry(ttl)
	expireAt := "runs." + r.ID + ".expireAt"
	filter := append(r.mine(), bson.E{Key: expireAt, Value: bson.D{{Key: "$gt", Value: date(now.Lowest)}}})
	later := bson.D{{Key: expireAt, Value: date(until)}}
	if !r.Shared {
		later = append(later, bson.E{Key: "busy.until", Value: date(until)})
	}
	reply, err := m.modify(mongobase.Bare(ctx), filter, bson.D{{Key: "$max", Value: later}, stamp}, after)
	if err != nil {
		return 0, mongoerr.Mark(err)
	}
	if !reply.Found() {
		return 0, store.ErrGone
	}
	return mongoclock.Left(ttl, sent, reply.Sent, until, reply.doc.At), nil
}

// Finish removes the run and enters it in the ring, with the runs that died before it.
func (m *mongoStore) Finish(ctx context.Context, e End) error {
	unset := bson.D{{Key: "runs." + e.ID, Value: ""}}
	if !e.Shared {
		unset = append(unset, bson.E{Key: "busy", Value: ""})
	}
	e.Run.Slot = e.Slot
	now, err := m.read(ctx)
	if err != nil {
		return err
	}
	ended := now.Likely
	if ended.Before(e.Run.Began) {
		ended = e.Run.Began
	}
	set := append(enter(e.Run, e.Run.Outcome, e.Run.Error), bson.E{Key: at(e.Slot) + "ended", Value: date(ended)})
	taken := map[int]bool{e.Slot: true}
	for _, d := range e.Dead {
		unset = append(unset, bson.E{Key: "runs." + d.ID, Value: ""})
		if !taken[d.Slot] { // there may be more dead runs than slots
			taken[d.Slot] = true
			set = append(set, enter(d, Died, d.Error)...)
			set = append(set, bson.E{Key: at(d.Slot) + "ended", Value: date(d.ExpireAt)})
		}
	}
	update := bson.D{
		{Key: "$unset", Value: unset},
		{Key: "$set", Value: set},
		stamp,
	}
	if !e.Decided.IsZero() {
		update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: "decided", Value: date(e.Decided)}}})
	}
	reply, err := m.modify(mongobase.Bare(ctx), e.mine(), update, after)
	switch {
	case err != nil:
		return mongoerr.Mark(err)
	case !reply.Found():
		return store.ErrGone
	}
	return nil
}
