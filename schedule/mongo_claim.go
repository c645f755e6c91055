package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Claim is one findOneAndUpdate with upsert. If the filter does not match the job's
// document, or another process has just inserted it, the answer is E11000.
func (m *mongoStore) Claim(ctx context.Context, c Claim) (Claimed, error) {
	sent := m.base.Clock.Now()
	attempt, err := m.base.Begin(ctx, c.ID, c.TTL)
	if err != nil {
		return Claimed{}, err
	}
	now := m.base.Now()
	_, until := now.Expiry(c.TTL)
	opts := upsert
	if c.Dead != nil {
		opts = after
	}
	in := attempt.In(ctx)
	r, err := m.modify(in, c.filter(now.Lowest), c.update(now.Likely, until), opts)
	refused := c.Dead != nil && err == nil && !r.Found() || mongoerr.ClassOf(err) == mongoerr.DuplicateID
	attempt.Answered(r.Reply, refused)
	switch {
	case refused && attempt.Twin:
		m.base.Over(attempt, false)
		return Claimed{}, m.refusedLate(ctx, c)
	case refused:
		m.base.Over(attempt, true)
		if now.Age > stale {
			_ = m.sample(ctx, c.Job) // if it fails, the next lost claim asks again
		}
		return Claimed{}, ErrNotDue
	case err == nil && !r.Found():
		r, err = m.confirm(in, c) // after an error the outcome is unknown, whatever it says
	case err != nil:
		err = mongobase.RefusedOrUnknown(r.Reply, err)
	}
	m.base.Over(attempt, err == nil || errors.Is(err, store.ErrNotApplied))
	if err != nil {
		return Claimed{}, err
	}
	won := Claimed{
		Left: mongoclock.Left(c.TTL, sent, r.Sent, until, r.doc.At), Began: r.doc.At.UTC(), Slot: slot(r.doc.Seq, c.Keep),
	}
	for _, run := range r.doc.runs() {
		if run.ID != c.ID && !run.ExpireAt.After(r.doc.At) { // by the clock that wrote this image
			won.Dead = append(won.Dead, run)
		}
	}
	return won, nil
}

// confirm looks for a claim that was answered without a document. An upsert that was
// applied returns the document, and one that was not is E11000. But SecantusDB applies
// the upsert and returns no document if the filter began to match during the command.
func (m *mongoStore) confirm(in context.Context, c Claim) (reply, error) {
	r, err := m.modify(in, c.there(), bson.D{stamp}, after)
	if err == nil && !r.Found() {
		err = errNoTrace
	}
	return r, err
}

var errNoTrace = errors.New("schedule: the server returned no document for an applied claim")

// refusedLate makes sure that no copy of a claim is applied after the claim was refused
// late, that is after more than a second. The driver may have sent the claim twice, and
// the refusal be the second copy's: the first may still wait in a socket, and find the
// job free later. refusedLate undoes the claim in its session, so that the server
// refuses a copy that arrives later.
func (m *mongoStore) refusedLate(ctx context.Context, c Claim) error {
	switch settled, err := m.Undo(ctx, c); {
	case err != nil:
		return fmt.Errorf("schedule: a claim was refused late, and could not be undone: %v", err) //nolint:errorlint // that the clean-up was not applied says nothing about the claim
	case !settled:
		return errors.New("schedule: a claim was refused late, and may still be applied")
	}
	return ErrNotDue
}

// there matches the job's document while the claim is in it.
func (c Claim) there() bson.D {
	return bson.D{{Key: "_id", Value: c.Job}, ours, {Key: "runs." + c.ID, Value: bson.D{{Key: "$exists", Value: true}}}}
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
	if !c.Ahead.IsZero() {
		decided = bson.D{{Key: "$eq", Value: date(c.Ahead)}}
	}
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
		{Key: "runs." + c.ID + ".began", Value: date(began)}, // for people; FerretDB has no $currentDate inside a document
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

// Undo removes a claim by its ID, and gives its fire back if no later one was decided.
func (m *mongoStore) Undo(ctx context.Context, c Claim) (settled bool, err error) {
	return m.base.Undo(ctx, c.ID, func(ctx context.Context, _ *mongobase.Attempt) (found bool, err error) {
		r, err := m.takeOut(ctx, c)
		return r.Found(), err
	})
}

func (m *mongoStore) takeOut(ctx context.Context, c Claim) (reply, error) {
	mine := c.there()
	unset := bson.D{{Key: "runs." + c.ID, Value: ""}}
	if c.Dead != nil { // as if this run had died too, so that it is repeated
		past := date(time.UnixMilli(0))
		set := bson.D{{Key: "runs." + c.ID + ".expireAt", Value: past}}
		if !c.Shared {
			mine = append(mine, bson.E{Key: "busy.id", Value: c.ID})
			set = append(set, bson.E{Key: "busy.until", Value: past})
		}
		return m.modify(ctx, mine, bson.D{{Key: "$set", Value: set}, stamp}, after)
	}
	if !c.Shared {
		mine = append(mine, bson.E{Key: "busy.id", Value: c.ID})
		unset = append(unset, bson.E{Key: "busy", Value: ""})
	}
	back := bson.D{{Key: "decided", Value: date(c.Fire.Add(-time.Millisecond))}, {Key: "next", Value: date(c.Fire)}}
	last := append(slices.Clone(mine), bson.E{Key: "decided", Value: date(c.Fire)})
	r, err := m.modify(ctx, last, bson.D{{Key: "$unset", Value: unset}, {Key: "$set", Value: back}, stamp}, after)
	if err == nil && !r.Found() {
		r, err = m.modify(ctx, mine, bson.D{{Key: "$unset", Value: unset}, stamp}, after)
	}
	return r, err
}
