package pathlock

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// release removes a lock with one command.
func (m *mongoTree) release(ctx context.Context, token string) outcome {
	for ctx = command.Bare(ctx); ; {
		if err := notStarted(ctx); err != nil {
			return outcome{fault: err}
		}
		now, err := m.clock(ctx, nil)
		if err != nil {
			return outcome{fault: err}
		}
		filter := bson.D{{Key: "_id", Value: token}, {Key: fieldTree, Value: m.name}, {Key: fieldState, Value: stateGranted}}
		if o, done := m.remove(ctx, now, append(filter, m.notLapsed()...)); done {
			return o
		}
		r, o := m.alive(ctx, token, true)
		if r == nil {
			return o
		}
	}
}

// remove ends the lock that a filter finds.
func (m *mongoTree) remove(ctx context.Context, now interval, filter bson.D) (o outcome, done bool) {
	w, err := m.standing(ctx)
	if err != nil {
		if !sure(err) {
			err = server.NotApplied(err)
		}
		return outcome{fault: err}, true
	}
	sent := m.base.Clock.Now()
	reply, err := m.bury(ctx, w, now, filter, stateReleased)
	switch {
	case err != nil:
		return outcome{fault: server.Classified(err)}, true
	case !reply.Found():
		return o, false
	}
	o = outcome{changed: true, heard: w.heard(now)}
	if r, err := readRecord(reply.Image); err == nil && !w.watches(now) && m.base.Clock.Now().Sub(sent) > wordFresh {
		o.heard = m.buryLate(ctx, r) || o.heard
	}
	return o, true
}

// tombstone returns the update by which a record tells watchers of the end of its lock. After
// it no request finds the record.
func (m *mongoTree) tombstone(state string, now interval) bson.D {
	return bson.D{
		{Key: "$set", Value: bson.D{
			{Key: fieldState, Value: state}, {Key: fieldUnder, Value: bson.A{bucket(m.name, now.Latest)}}, {Key: fieldRev, Value: bson.NewObjectID()},
		}},
		{Key: "$unset", Value: bson.D{{Key: fieldOn, Value: ""}}},
		{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}, {Key: fieldEnded, Value: true}}},
	}
}

// bury removes the record that a filter finds. While the tree is watched it stays, for the watchers.
func (m *mongoTree) bury(ctx context.Context, w word, now interval, filter bson.D, state string) (command.Reply, error) {
	if w.watches(now) {
		return m.base.Modify(ctx, m.base.MajorityJournaled, filter, m.tombstone(state, now), withoutKeys(options.Before))
	}
	return m.base.Remove(ctx, m.base.MajorityJournaled, filter)
}

// end removes a record that has run out, if it has not changed since it was seen.
func (m *mongoTree) end(ctx context.Context, now interval, r *record) (gone bool, err error) {
	w, err := m.standing(ctx)
	if err != nil {
		return false, err
	}
	reply, err := m.bury(ctx, w, now, bson.D{{Key: "_id", Value: r.Token}, {Key: fieldState, Value: r.state}, {Key: fieldRev, Value: r.rev}}, stateExpired)
	return reply.Found(), err
}

// takeBack removes a lock in the session of its attempt, so that a late command of the attempt
// is refused.
func (m *mongoTree) takeBack(ctx context.Context, token string) (settled bool, err error) {
	ctx, a := m.base.BeginUndo(ctx, token)
	var w word
	var r command.Reply
	now, err := m.clock(ctx, nil)
	if err == nil {
		w, err = m.standing(ctx)
	}
	if err == nil {
		r, err = m.bury(ctx, w, now, bson.D{{Key: "_id", Value: token}, {Key: fieldState, Value: stateGranted}}, stateReleased)
	}
	return m.base.Undone(a, r.Found(), err)
}

// tellLate tells watchers of a grant that was made with an old word. It reports whether the
// tree is watched, and whether it is waited for or watched.
func (m *mongoTree) tellLate(ctx context.Context, token string) (watched, heard bool) {
	w, err := m.standing(ctx)
	now := m.lately()
	if err != nil || !w.watches(now) {
		return false, err == nil && w.heard(now)
	}
	_, _ = m.base.Modify(ctx, m.base.MajorityJournaled, bson.D{{Key: "_id", Value: token}, {Key: fieldState, Value: stateGranted}}, bson.D{
		{Key: "$push", Value: bson.D{{Key: fieldUnder, Value: bucket(m.name, now.Latest)}}},
		{Key: "$currentDate", Value: bson.D{{Key: fieldGranted, Value: true}}},
	}, onlyAt())
	return true, true
}

// buryLate does the same for a record that was removed.
func (m *mongoTree) buryLate(ctx context.Context, r record) (heard bool) {
	r.state = stateReleased
	w, err := m.standing(ctx)
	now := m.lately()
	if err != nil || !w.watches(now) {
		return err == nil && w.heard(now)
	}
	r.until = server.Ceil(now.Latest)
	d := r.encoded(m.name)
	if !r.granted.IsZero() {
		d = append(d, bson.E{Key: fieldGranted, Value: r.granted})
	}
	update := m.tombstone(r.state, now)
	buried := update[0].Value.(bson.D)
	for _, e := range d {
		if e.Key != fieldOn && e.Key != fieldUnder && e.Key != fieldState && e.Key != fieldRev {
			buried = append(buried, e)
		}
	}
	_, _ = m.base.Modify(ctx, m.base.W1, bson.D{{Key: "_id", Value: r.Token}, {Key: fieldRev, Value: bson.D{{Key: "$exists", Value: false}}}},
		bson.D{{Key: "$set", Value: buried}, update[2]}, onlyAt().SetUpsert(true))
	return true
}

// withoutKeys makes an update return the document without the numbers by which it is found.
func withoutKeys(which options.ReturnDocument) *options.FindOneAndUpdateOptionsBuilder {
	return options.FindOneAndUpdate().SetReturnDocument(which).SetProjection(bson.D{{Key: fieldOn, Value: 0}, {Key: fieldUnder, Value: 0}})
}
