package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Claim is one findOneAndUpdate: with upsert, so that a document that the filter
// does not match, or that another has just made, answers E11000.
func (m *mongoStore) Claim(ctx context.Context, c Claim) (Claimed, error) {
	sent := m.base.Clock.Now()
	attempt, err := m.base.Begin(ctx, c.ID, c.TTL)
	if err != nil {
		return Claimed{}, err
	}
	now := m.base.Now()
	_, until := now.Expiry(c.TTL)
	opts := mongobase.Upsert
	if c.Dead != nil {
		opts = mongobase.After
	}
	r, err := m.modify(attempt.In(ctx), c.filter(now.Lowest), c.update(now.Likely, until), opts)
	lost := err == nil && !r.Found() || mongoerr.ClassOf(err) == mongoerr.DuplicateID
	if !lost {
		err = mongoerr.Mark(err)
	}
	m.base.Over(attempt, err == nil || lost || errors.Is(err, store.ErrNotApplied))
	switch {
	case lost:
		if now.Age > stale {
			_ = m.sample(ctx, c.Job) // the next one asks again
		}
		return Claimed{}, ErrNotDue
	case err != nil:
		return Claimed{}, err
	}
	won := Claimed{
		Left: mongoclock.Left(c.TTL, sent, r.Sent, until, r.doc.At), Began: r.doc.At.UTC(), Slot: slot(r.doc.Seq, c.Keep),
	}
	for _, run := range r.doc.runs() {
		if run.ID != c.ID && !run.ExpireAt.After(r.doc.At) { // by the clock that has just written this
			won.Dead = append(won.Dead, run)
		}
	}
	return won, nil
}

func (c Claim) filter(lowest time.Time) bson.D {
	f := bson.D{{Key: "_id", Value: c.Job}, ours}
	if c.Dead != nil {
		f = append(f, bson.E{Key: "runs." + c.Dead.ID + ".expireAt", Value: bson.D{{Key: "$lte", Value: date(lowest)}}})
		if !c.Shared {
			f = append(f, bson.E{Key: "busy.id", Value: c.Dead.ID})
		}
		return f
	}
	decided := bson.D{{Key: "$lt", Value: date(c.Fire)}}
	if !c.From.IsZero() {
		decided = append(decided, bson.E{Key: "$gte", Value: date(c.From)})
	}
	f = append(f, bson.E{Key: "decided", Value: decided})
	switch {
	case c.Shared:
	case c.Wait:
		f = append(f, bson.E{Key: "busy.id", Value: bson.D{{Key: "$exists", Value: false}}})
	default:
		f = append(f, bson.E{Key: "busy.until", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: date(lowest)}}}}})
	}
	return f
}

func (c Claim) update(began, until time.Time) bson.D {
	set := bson.D{
		{Key: "plan", Value: c.Plan},
		{Key: "keep", Value: c.Keep},
		{Key: "runs." + c.ID + ".fire", Value: date(c.Fire)},
		{Key: "runs." + c.ID + ".attempt", Value: c.Attempt},
		{Key: "runs." + c.ID + ".owner", Value: c.Owner},
		{Key: "runs." + c.ID + ".began", Value: date(began)}, // for people; no $currentDate inside a document on FerretDB
		{Key: "runs." + c.ID + ".expireAt", Value: date(until)},
	}
	if !c.Shared {
		set = append(set, bson.E{Key: "busy", Value: bson.D{{Key: "id", Value: c.ID}, {Key: "until", Value: date(until)}}})
	}
	update := bson.D{
		{Key: "$inc", Value: bson.D{{Key: "seq", Value: 1}}},
		stamp,
	}
	if c.Dead == nil {
		set = append(set, bson.E{Key: "decided", Value: date(c.Fire)}, bson.E{Key: "next", Value: date(c.Next)})
	} else {
		set = append(set, enter(*c.Dead, Died, c.Dead.Error)...)
		set = append(set, bson.E{Key: at(c.Dead.Slot) + "ended", Value: date(c.Dead.ExpireAt)})
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: "runs." + c.Dead.ID, Value: ""}}})
	}
	return append(update, bson.E{Key: "$set", Value: set})
}

// Undo takes a claim out by its ID, and its fire back if nobody decided a later one.
func (m *mongoStore) Undo(ctx context.Context, c Claim) (settled bool, err error) {
	return m.base.Undo(ctx, c.ID, func(ctx context.Context, _ *mongobase.Attempt) (found bool, err error) {
		r, err := m.takeOut(ctx, c)
		return r.Found(), err
	})
}

func (m *mongoStore) takeOut(ctx context.Context, c Claim) (reply, error) {
	mine := bson.D{{Key: "_id", Value: c.Job}, ours, {Key: "runs." + c.ID, Value: bson.D{{Key: "$exists", Value: true}}}}
	unset := bson.D{{Key: "runs." + c.ID, Value: ""}}
	if c.Dead != nil { // as if it had died in its turn: then it will be repeated
		past := date(time.UnixMilli(0))
		set := bson.D{{Key: "runs." + c.ID + ".expireAt", Value: past}}
		if !c.Shared {
			mine = append(mine, bson.E{Key: "busy.id", Value: c.ID})
			set = append(set, bson.E{Key: "busy.until", Value: past})
		}
		return m.modify(ctx, mine, bson.D{{Key: "$set", Value: set}, stamp}, mongobase.After)
	}
	if !c.Shared {
		mine = append(mine, bson.E{Key: "busy.id", Value: c.ID})
		unset = append(unset, bson.E{Key: "busy", Value: ""})
	}
	back := bson.D{{Key: "decided", Value: date(c.Fire.Add(-time.Millisecond))}, {Key: "next", Value: date(c.Fire)}}
	last := append(slices.Clone(mine), bson.E{Key: "decided", Value: date(c.Fire)})
	r, err := m.modify(ctx, last, bson.D{{Key: "$unset", Value: unset}, {Key: "$set", Value: back}, stamp}, mongobase.After)
	if err == nil && !r.Found() {
		r, err = m.modify(ctx, mine, bson.D{{Key: "$unset", Value: unset}, stamp}, mongobase.After)
	}
	return r, err
}
