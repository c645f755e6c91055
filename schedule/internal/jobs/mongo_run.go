package jobs

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// mine matches the job's document while the run has not been replaced.
func (r Ref) mine() bson.D {
	f := bson.D{{Key: "_id", Value: r.Job}, ours}
	if r.Shared {
		return append(f, bson.E{Key: "runs." + r.ID, Value: bson.D{{Key: "$exists", Value: true}}})
	}
	return append(f, bson.E{Key: "busy.id", Value: r.ID})
}

// Renew moves the expiry of the run, and of busy, by $max: a renewal that arrives late lowers
// neither.
func (m *Mongo) Renew(ctx context.Context, r Ref, ttl time.Duration) (time.Duration, error) {
	sent := m.base.Clock.Now()
	if _, err := m.read(ctx); err != nil {
		return 0, err
	}
	left, err := m.renew(ctx, r, ttl, sent)
	if err != nil || left > 0 {
		return left, err
	}
	if _, _, err := m.base.Hello(ctx); err != nil { // its dates are of another clock: again
		return 0, nil //nolint:nilerr // the renewal was applied, but is worth nothing
	}
	return m.renew(ctx, r, ttl, sent)
}

func (m *Mongo) renew(ctx context.Context, r Ref, ttl time.Duration, sent server.Moment) (time.Duration, error) {
	t := m.base.Tenure(ttl)
	run := "runs." + r.ID + "."
	filter := append(r.mine(), bson.E{Key: run + "beat", Value: bson.D{{Key: "$lt", Value: t.Beat}}})
	if t.By.Sure { // a date of another election is by another clock
		filter = append(filter, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: run + "expireAt", Value: bson.D{{Key: "$gt", Value: date(m.base.Now().Lowest)}}}},
			bson.D{{Key: run + "epoch", Value: bson.D{{Key: "$ne", Value: t.By.Epoch}}}},
		}})
	}
	later, set := bson.D{{Key: run + "expireAt", Value: date(t.Until)}, {Key: run + "ttl", Value: command.Millis(ttl)}}, stamped(t, run)
	if !r.Shared {
		later = append(later, bson.E{Key: "busy.until", Value: date(t.Until)})
		set = append(set, stamped(t, "busy.")...)
	}
	reply, err := m.modify(command.Bare(ctx), filter, bson.D{{Key: "$max", Value: later}, {Key: "$set", Value: set}, stamp}, after)
	if err != nil {
		return 0, server.Classified(err)
	}
	if !reply.Found() {
		return 0, store.ErrGone
	}
	m.base.Refresh(ctx)
	return m.left(t, sent, reply), nil
}

// Finish removes the run and enters it in the ring, with the runs that died before it.
func (m *Mongo) Finish(ctx context.Context, e End) error {
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
			set = append(set, enter(d, d.outcomeOfDead(), d.Error)...)
			set = append(set, bson.E{Key: at(d.Slot) + "ended", Value: date(d.ExpireAt)})
		}
	}
	update := bson.D{
		{Key: "$unset", Value: unset},
		{Key: "$set", Value: set},
		{Key: "$max", Value: bson.D{{Key: "ended", Value: date(e.Run.Due)}}},
		stamp,
	}
	reply, err := m.modify(command.Bare(ctx), e.mine(), update, after)
	switch {
	case err != nil:
		return server.Classified(err)
	case !reply.Found():
		return store.ErrGone
	}
	return nil
}

// Leave makes a run look as if its process had died long ago, so that it may be repeated at once.
func (m *Mongo) Leave(ctx context.Context, e End) error {
	run, past := "runs."+e.ID+".", date(time.UnixMilli(0))
	set := bson.D{{Key: run + "expireAt", Value: past}, {Key: run + "outcome", Value: e.Run.Outcome}, {Key: run + "error", Value: e.Run.Error}}
	if !e.Shared {
		set = append(set, bson.E{Key: "busy.until", Value: past})
	}
	reply, err := m.modify(command.Bare(ctx), e.mine(), bson.D{{Key: "$set", Value: set}, stamp}, after)
	switch {
	case err != nil:
		return server.Classified(err)
	case !reply.Found():
		return store.ErrGone
	}
	return nil
}
