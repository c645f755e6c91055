package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Claim is one findOneAndUpdate, whose filter matches nothing if the claim is refused.
func (m *Mongo) Claim(ctx context.Context, c Claim) (Claimed, error) {
	within, attempt, err := m.base.Begin(ctx, c.ID, c.TTL)
	if err != nil {
		return Claimed{}, err
	}
	t := m.base.Validity(c.TTL)
	r, err := m.claim(within, attempt, c, t)
	m.base.Over(attempt, err == nil || errors.Is(err, ErrNotDue) || errors.Is(err, store.ErrNotApplied))
	switch {
	case errors.Is(err, errLate):
		return Claimed{}, m.refusedLate(ctx, c)
	case errors.Is(err, ErrNotDue) && t.By.Age > stale:
		_ = m.sample(ctx, c.Job) // if it fails, the next lost claim asks again
	}
	if err != nil {
		return Claimed{}, err
	}
	won := Claimed{Left: m.left(t, attempt.Sent, r), Began: r.doc.At, Number: r.doc.Seq}
	if won.Left == 0 { // its dates are of another clock, or the claim was late: again, by a new sample
		if _, _, err := m.base.Hello(ctx); err == nil {
			won.Left, _ = m.renew(ctx, c.Ref, c.TTL, false, attempt.Sent)
		}
	}
	return won, nil
}

// claim sends the claim in its attempt. A claim of which it says ErrNotDue was certainly not applied.
func (m *Mongo) claim(ctx context.Context, attempt *server.Attempt, c Claim, t server.Validity) (r reply, err error) {
	filter, err := m.filter(ctx, c)
	if err != nil {
		return r, err
	}
	r, err = m.modify(ctx, filter, c.update(t), after)
	refused := err == nil && !r.Found()
	attempt.Answered(r.Reply, refused)
	switch {
	case refused && attempt.Twin:
		err = errLate
	case refused:
		err = ErrNotDue
	case err != nil:
		err = server.RefusedOrUnknown(r.Reply, err)
	}
	return r, err
}

// left returns how long after sent a run that was written with this validity is honoured.
func (m *Mongo) left(t server.Validity, sent server.Moment, r reply) time.Duration {
	return m.base.Left(t, sent, r.Sent, r.doc.At)
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

// filter returns the condition of a claim. The runs that a repetition finds over are those of the last look, by
// the rules of docs/internals/design.md §4.3. Each must still have the beat that was seen.
func (m *Mongo) filter(ctx context.Context, c Claim) (bson.D, error) {
	f := append(named(c.Job), bson.E{Key: "paused", Value: bson.D{{Key: "$exists", Value: false}}})
	open := 0
	if c.Dead != nil {
		runs, looked := m.base.Last(c.Job)
		over, err := m.base.Judge(ctx, c.Job, runs, looked, looked)
		if err != nil {
			return nil, server.NotApplied(err)
		}
		if !over[c.Dead.ID] || c.Alone && len(over) < len(runs) {
			return nil, ErrNotDue
		}
		open = len(runs)
		for _, r := range runs {
			if c.Alone || r.ID == c.Dead.ID {
				f = append(f, bson.E{Key: "runs." + r.ID + ".beat", Value: r.Beat})
			}
		}
		if c.Enter {
			f = append(f, bson.E{Key: "seq", Value: c.Seq})
		}
	} else {
		decided := bson.D{{Key: "$gte", Value: date(c.Mark)}, {Key: "$lt", Value: date(c.First)}}
		if !c.Ahead.IsZero() {
			decided = bson.D{{Key: "$eq", Value: date(c.Ahead)}}
		}
		f = append(f, bson.E{Key: "edition", Value: c.Edition}, bson.E{Key: "decided", Value: decided})
		switch {
		case c.Run.Verdict == "":
		case c.Asked.IsZero():
			f = append(f, bson.E{Key: "asked", Value: bson.D{{Key: "$exists", Value: false}}})
		default:
			f = append(f, bson.E{Key: "asked", Value: date(c.Asked)})
		}
	}
	if c.Alone {
		f = append(f, bson.E{Key: "open", Value: open})
	}
	return f, nil
}

func (c Claim) update(t server.Validity) bson.D {
	r := record{c.Run, server.Millis(t.TTL), t.Beat, t.By.Epoch}
	r.ID, r.ExpireAt = "", t.Until
	if r.Began.IsZero() {
		r.Began = t.By.Likely // for people
	}
	set := bson.D{{Key: "keep", Value: c.Keep}, {Key: "tried", Value: date(t.By.Likely)}, {Key: "runs." + c.ID, Value: r}}
	if c.Dead == nil {
		return bson.D{{Key: "$set", Value: append(set, bson.E{Key: "decided", Value: date(c.Run.Due)})},
			{Key: "$inc", Value: bson.D{{Key: "seq", Value: int64(1)}, {Key: "open", Value: 1}}}, stamp}
	}
	claims := int64(1)
	if c.Enter {
		claims = 2
		set = append(set, enter(c.Dead.asDead(), c.Seq+1, c.Keep))
	}
	return bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: bson.D{{Key: "runs." + c.Dead.ID, Value: ""}}},
		{Key: "$inc", Value: bson.D{{Key: "seq", Value: claims}}}, stamp}
}

// Renew moves the expiry of the run by $max: a renewal that arrives late does not lower it.
func (m *Mongo) Renew(ctx context.Context, r Ref, ttl time.Duration, begun bool) (time.Duration, error) {
	sent := m.base.Clock.Now()
	if _, err := m.base.Read(ctx); err != nil {
		return 0, server.NotApplied(err)
	}
	left, err := m.renew(ctx, r, ttl, begun, sent)
	if err != nil || left > 0 {
		return left, err
	}
	if _, _, err := m.base.Hello(ctx); err != nil { // its dates are of another clock: again
		return 0, nil //nolint:nilerr // the renewal was applied, but is worth nothing
	}
	return m.renew(ctx, r, ttl, begun, sent)
}

func (m *Mongo) renew(ctx context.Context, r Ref, ttl time.Duration, begun bool, sent server.Moment) (time.Duration, error) {
	t := m.base.Validity(ttl)
	run := "runs." + r.ID + "."
	filter := append(named(r.Job), bson.E{Key: run + "beat", Value: bson.D{{Key: "$lt", Value: t.Beat}}})
	if t.By.Sure { // a date of another election is by another clock
		filter = append(filter, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: run + "expireAt", Value: bson.D{{Key: "$gt", Value: date(m.base.Now().Lowest)}}}},
			bson.D{{Key: run + "epoch", Value: bson.D{{Key: "$ne", Value: t.By.Epoch}}}},
		}})
	}
	set := bson.D{{Key: run + "beat", Value: t.Beat}, {Key: run + "epoch", Value: t.By.Epoch}}
	update := bson.D{{Key: "$max", Value: bson.D{{Key: run + "expireAt", Value: date(t.Until)}, {Key: run + "ttl", Value: server.Millis(ttl)}}}, stamp}
	if begun {
		set = append(set, bson.E{Key: run + "begun", Value: true})
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: run + "drops", Value: ""}}})
	}
	reply, err := m.modify(server.Bare(ctx), filter, append(update, bson.E{Key: "$set", Value: set}), after)
	if err != nil {
		return 0, server.Classified(err)
	}
	if !reply.Found() {
		return 0, store.ErrGone
	}
	m.base.Refresh(ctx)
	return m.left(t, sent, reply), nil
}

// End removes the run and enters it in the ring, or leaves it.
func (m *Mongo) End(ctx context.Context, e End) error {
	now, err := m.base.Read(ctx)
	if err != nil {
		return server.NotApplied(err)
	}
	e.Run.Ended = now.Likely
	if e.Run.Ended.Before(e.Run.Began) {
		e.Run.Ended = e.Run.Began
	}
	run := "runs." + e.ID
	if !e.Run.Again.IsZero() {
		return m.change(ctx, e.open(), bson.D{m.leaves(e.Ref, e.Run), {Key: "$unset", Value: bson.D{{Key: run + ".drops", Value: ""}}}}, store.ErrGone)
	}
	set := bson.D{enter(e.Run, e.Run.Number, e.Keep)}
	if e.Run.Outcome == Succeeded {
		set = append(set, bson.E{Key: "succeeded", Value: date(e.Run.Ended)})
	}
	return m.change(ctx, e.open(), bson.D{{Key: "$unset", Value: bson.D{{Key: run, Value: ""}}}, {Key: "$set", Value: set},
		{Key: "$inc", Value: bson.D{{Key: "open", Value: -1}}}}, store.ErrGone)
}

// leaves returns what makes a run one that is over by any clock, and that no late renewal brings back.
func (m *Mongo) leaves(ref Ref, r Run) bson.E {
	r = r.left(r.Outcome, r.Error, r.Ended, r.Again)
	run := "runs." + ref.ID + "."
	return bson.E{Key: "$set", Value: bson.D{{Key: run + "outcome", Value: r.Outcome}, {Key: run + "error", Value: r.Error}, {Key: run + "ended", Value: date(r.Ended)},
		{Key: run + "again", Value: date(r.Again)}, {Key: run + "expireAt", Value: date(r.ExpireAt)}, {Key: run + "beat", Value: m.base.Beat()}}}
}

// Undo leaves a claim by its ID, in the claim's session.
func (m *Mongo) Undo(ctx context.Context, c Claim) (settled bool, err error) {
	var r reply
	ctx, a := m.base.BeginUndo(ctx, c.ID)
	if c.Back {
		last := append(c.open(), bson.E{Key: "decided", Value: date(c.Run.Due)})
		r, err = m.modify(ctx, last, bson.D{{Key: "$unset", Value: bson.D{{Key: "runs." + c.ID, Value: ""}}},
			{Key: "$set", Value: bson.D{{Key: "decided", Value: date(c.Mark)}}}, {Key: "$inc", Value: bson.D{{Key: "open", Value: -1}}}, stamp}, after)
	}
	if err == nil && !r.Found() {
		now := m.Now()
		r, err = m.modify(ctx, c.open(), bson.D{m.leaves(c.Ref, Run{Outcome: Unbegun, Ended: now, Again: now}), stamp}, after)
	}
	return m.base.Undone(a, r.Found(), err)
}
