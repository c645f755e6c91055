package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Claim is one findOneAndUpdate with upsert. If the filter does not match the job's
// document, or another process has just inserted it, the answer is E11000.
func (m *Mongo) Claim(ctx context.Context, c Claim) (Claimed, error) {
	sent := m.base.Clock.Now()
	var (
		t    server.Tenure
		over []server.HolderState
		r    reply
	)
	err := m.base.Try(ctx, c.ID, c.TTL, func(in context.Context, attempt *command.Attempt) (certain bool, err error) {
		t = m.base.Tenure(c.TTL)
		if over, err = m.judgeAgain(in, c.Job); err != nil {
			return true, server.NotApplied(err)
		}
		opts := upsert
		if c.Dead != nil {
			opts = after
		}
		r, err = m.modify(in, m.filter(c, over), c.update(t), opts)
		refused := c.Dead != nil && err == nil && !r.Found() || server.ClassOf(err) == server.DuplicateID
		attempt.Answered(r.Reply, refused)
		switch {
		case refused && attempt.Twin:
			return false, errLate
		case refused:
			return true, ErrNotDue
		case err == nil && !r.Found():
			r, err = m.confirm(in, c) // after an error the outcome is unknown, whatever the error says
		case err != nil:
			err = command.RefusedOrUnknown(r.Reply, err)
		}
		return err == nil || errors.Is(err, store.ErrNotApplied), err
	})
	switch {
	case errors.Is(err, errLate):
		return Claimed{}, m.refusedLate(ctx, c)
	case errors.Is(err, ErrNotDue) && t.By.Age > stale:
		_ = m.sample(ctx, c.Job) // if it fails, the next lost claim asks again
		return Claimed{}, err
	case err != nil:
		return Claimed{}, err
	}
	won := Claimed{Left: m.left(t, sent, r), Began: r.doc.At.UTC(), Slot: slot(r.doc.Seq, c.Keep)}
	if won.Left == 0 { // its dates are of another clock, or the claim was late: again, by a new sample
		if _, _, err := m.base.Hello(ctx); err == nil {
			won.Left, _ = m.renew(ctx, c.Ref, c.TTL, sent)
		}
	}
	won.Before = r.doc.Ended.UTC()
	won.Paused, won.Resumed = r.doc.PausedAt.UTC(), r.doc.ResumedAt.UTC()
	won.Asked = r.doc.Asked.UTC()
	for _, run := range r.doc.runs() {
		if run.ID != c.ID && run.Due.After(won.Before) {
			won.Before = run.Due
		}
		mark := r.doc.Runs[run.ID].mark(run.ID)
		if run.ID != c.ID && (slices.Contains(over, mark) || !m.base.ManyClocks() && mark.LongPast(r.doc.At)) {
			won.Dead = append(won.Dead, run)
		}
	}
	return won, nil
}

// judgeAgain judges the runs that the last look at a job showed. It returns those that are over, as
// they were seen.
func (m *Mongo) judgeAgain(ctx context.Context, job string) (over []server.HolderState, err error) {
	runs, looked := m.base.Last(job)
	if len(runs) == 0 {
		return nil, nil
	}
	which, err := m.base.Judge(ctx, job, runs, looked, looked)
	for _, run := range runs {
		if which[run.ID] {
			over = append(over, run)
		}
	}
	return over, err
}

// left returns how long after sent a run that was written with this tenure is honoured.
func (m *Mongo) left(t server.Tenure, sent server.Moment, r reply) time.Duration {
	return m.base.Left(t, sent, r.Sent, r.doc.At)
}

// confirm reads a claim that was answered without a document. MongoDB answers an upsert that
// was applied with the document, and one that was not with E11000. But SecantusDB applies the
// upsert and returns no document if the filter began to match during the command.
func (m *Mongo) confirm(in context.Context, c Claim) (reply, error) {
	r, err := m.modify(in, c.there(), bson.D{stamp}, after)
	if err == nil && !r.Found() {
		err = server.ErrNoTrace
	}
	return r, err
}

var errLate = errors.New("schedule: a claim was refused late")

// refusedLate makes sure that no copy of a claim is applied after the claim was refused late,
// that is after more than a second. The driver may have sent the claim twice, and the refusal
// may be of the second copy. The first copy may still wait in a socket, and find the job free
// later. refusedLate undoes the claim in its session, so that the server refuses a copy that
// arrives later.
func (m *Mongo) refusedLate(ctx context.Context, c Claim) error {
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

// filter returns the condition of a claim. A run that is in its way must be over by the rules
// of docs/internals/design.md §4.3: it still has the beat with which it was found over, or it has been
// past its end for a minute by any primary's clock, unless each shard has a clock of its own.
func (m *Mongo) filter(c Claim, over []server.HolderState) bson.D {
	f := bson.D{{Key: "_id", Value: c.Job}, ours, {Key: "paused", Value: bson.D{{Key: "$exists", Value: false}}}}
	var lowest time.Time // no end is before this one
	if !m.base.ManyClocks() {
		lowest = m.base.Now().Lowest
	}
	longPast := bson.D{{Key: "$lte", Value: date(lowest.Add(-server.LongPast))}}
	if c.Dead != nil {
		run := "runs." + c.Dead.ID + "."
		oneOf := bson.A{bson.D{{Key: run + "expireAt", Value: longPast}}}
		for _, h := range over {
			if h.ID == c.Dead.ID {
				oneOf = append(oneOf, bson.D{{Key: run + "beat", Value: h.Beat}})
			}
		}
		f = append(f, bson.E{Key: "$or", Value: oneOf})
		if !c.Shared {
			f = append(f, bson.E{Key: "busy.id", Value: c.Dead.ID})
		}
		return f
	}
	decided := bson.D{{Key: "$lt", Value: date(c.Due)}}
	if !c.Ahead.IsZero() {
		decided = bson.D{{Key: "$eq", Value: date(c.Ahead)}}
	}
	if !c.From.IsZero() {
		decided = append(decided, bson.E{Key: "$gte", Value: date(c.From)})
	}
	f = append(f, bson.E{Key: "decided", Value: decided})
	idle := bson.E{Key: "busy.id", Value: bson.D{{Key: "$exists", Value: false}}}
	switch {
	case c.Shared:
	case c.Wait:
		f = append(f, idle)
	default:
		oneOf := bson.A{bson.D{idle}, bson.D{{Key: "busy.until", Value: longPast}}}
		for _, h := range over {
			oneOf = append(oneOf, bson.D{{Key: "busy.id", Value: h.ID}, {Key: "busy.beat", Value: h.Beat}})
		}
		f = append(f, bson.E{Key: "$or", Value: oneOf})
	}
	return f
}

// stamped returns the fields of a run that every write for it sets.
func stamped(t server.Tenure, path string) bson.D {
	return bson.D{{Key: path + "beat", Value: t.Beat}, {Key: path + "epoch", Value: t.By.Epoch}}
}

func (c Claim) update(t server.Tenure) bson.D {
	set := bson.D{
		{Key: "plan", Value: c.Plan},
		{Key: "keep", Value: c.Keep},
		{Key: "runs." + c.ID + ".due", Value: date(c.Due)},
		{Key: "runs." + c.ID + ".attempt", Value: c.Attempt},
		{Key: "runs." + c.ID + ".owner", Value: c.Owner},
		{Key: "runs." + c.ID + ".began", Value: date(t.By.Likely)}, // for people
		{Key: "runs." + c.ID + ".expireAt", Value: date(t.Until)},
		{Key: "runs." + c.ID + ".ttl", Value: command.Millis(t.TTL)},
	}
	set = append(set, stamped(t, "runs."+c.ID+".")...)
	if !c.Shared {
		set = append(set, bson.E{Key: "busy", Value: append(bson.D{{Key: "id", Value: c.ID}, {Key: "until", Value: date(t.Until)}}, stamped(t, "")...)})
	}
	update := bson.D{
		{Key: "$inc", Value: bson.D{{Key: "seq", Value: 1}}},
		stamp,
	}
	if c.Dead == nil {
		set = append(set, bson.E{Key: "decided", Value: date(c.Due)}, bson.E{Key: "next", Value: date(c.Next)})
		if !c.Ahead.IsZero() {
			set = append(set, bson.E{Key: "ended", Value: date(c.Due)}) // what ended until then was decided by a wrong clock
		}
	} else {
		set = append(set, enter(*c.Dead, c.Dead.outcomeOfDead(), c.Dead.Error)...)
		set = append(set, bson.E{Key: at(c.Dead.Slot) + "ended", Value: date(c.Dead.ExpireAt)})
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: "runs." + c.Dead.ID, Value: ""}}})
	}
	return append(update, bson.E{Key: "$set", Value: set})
}

// Undo removes a claim by its ID, and gives its due time back if no later one was decided.
func (m *Mongo) Undo(ctx context.Context, c Claim) (settled bool, err error) {
	return m.base.Undo(ctx, c.ID, func(ctx context.Context, _ *command.Attempt) (found bool, err error) {
		r, err := m.takeOut(ctx, c)
		return r.Found(), err
	})
}

func (m *Mongo) takeOut(ctx context.Context, c Claim) (reply, error) {
	mine := c.there()
	unset := bson.D{{Key: "runs." + c.ID, Value: ""}}
	if c.Dead != nil { // as if the run that it repeats had just died, or been stopped
		past := date(time.UnixMilli(0))
		set := bson.D{{Key: "runs." + c.ID + ".expireAt", Value: past}, {Key: "runs." + c.ID + ".attempt", Value: c.Attempt - 1}, {Key: "runs." + c.ID + ".outcome", Value: c.Dead.Outcome}}
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
	back := bson.D{{Key: "decided", Value: date(c.Due.Add(-time.Millisecond))}, {Key: "next", Value: date(c.Due)}}
	last := append(slices.Clone(mine), bson.E{Key: "decided", Value: date(c.Due)})
	r, err := m.modify(ctx, last, bson.D{{Key: "$unset", Value: unset}, {Key: "$set", Value: back}, stamp}, after)
	if err == nil && !r.Found() {
		r, err = m.modify(ctx, mine, bson.D{{Key: "$unset", Value: unset}, stamp}, after)
	}
	return r, err
}
