package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Claim is one findOneAndUpdate: with upsert, so that a document that the filter
// does not match, or that another has just made, answers E11000.
func (m *mongoStore) Claim(ctx context.Context, c Claim) (Claimed, error) {
	sent := m.clock.Now()
	now, err := m.read(ctx)
	if err != nil {
		return Claimed{}, err
	}
	session, err := m.session()
	if err != nil {
		return Claimed{}, err
	}
	_, until := now.Expiry(c.TTL)
	filter, update, opts := c.filter(now.Lowest), c.update(now.Likely, until), upsert
	if c.Dead != nil {
		opts = after
	}
	r, err := m.modify(mongo.NewSessionContext(ctx, session), filter, update, opts)
	switch {
	case err == nil && r.found:
		end(session)
		won := Claimed{
			Left: mongoclock.Left(c.TTL, sent, r.sent, until, r.doc.At), Began: r.doc.At.UTC(), Slot: slot(r.doc.Seq, c.Keep),
		}
		for _, run := range r.doc.runs() {
			if run.ID != c.ID && !run.ExpireAt.After(r.doc.At) { // by the clock that has just written this
				won.Dead = append(won.Dead, run)
			}
		}
		return won, nil
	case err == nil || mongoerr.ClassOf(err) == mongoerr.DuplicateID:
		end(session)
		if now.Age > stale {
			_ = m.sample(ctx, c.Job) // the next one asks again
		}
		return Claimed{}, ErrNotDue
	case errors.Is(mongoerr.Mark(err), store.ErrNotApplied):
		end(session)
		return Claimed{}, mongoerr.Mark(err)
	}
	m.keep(c.ID, session, sent.Add(c.TTL+c.TTL/8+time.Second))
	return Claimed{}, err
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
	p, pending := m.takePending(c.ID)
	in := bare(ctx)
	if pending {
		in = mongo.NewSessionContext(ctx, p.session)
		defer func() {
			if settled {
				end(p.session)
			} else {
				m.keep(c.ID, p.session, p.until)
			}
		}()
	}
	mine := bson.D{{Key: "_id", Value: c.Job}, ours, {Key: "runs." + c.ID, Value: bson.D{{Key: "$exists", Value: true}}}}
	unset := bson.D{{Key: "runs." + c.ID, Value: ""}}
	if c.Dead != nil { // as if it had died in its turn: then it will be repeated
		past := date(time.UnixMilli(0))
		set := bson.D{{Key: "runs." + c.ID + ".expireAt", Value: past}}
		if !c.Shared {
			mine = append(mine, bson.E{Key: "busy.id", Value: c.ID})
			set = append(set, bson.E{Key: "busy.until", Value: past})
		}
		r, err := m.modify(in, mine, bson.D{{Key: "$set", Value: set}, stamp}, after)
		return m.undone(r, err, pending)
	}
	if !c.Shared {
		mine = append(mine, bson.E{Key: "busy.id", Value: c.ID})
		unset = append(unset, bson.E{Key: "busy", Value: ""})
	}
	back := bson.D{{Key: "decided", Value: date(c.Fire.Add(-time.Millisecond))}, {Key: "next", Value: date(c.Fire)}}
	last := append(slices.Clone(mine), bson.E{Key: "decided", Value: date(c.Fire)})
	r, err := m.modify(in, last, bson.D{{Key: "$unset", Value: unset}, {Key: "$set", Value: back}, stamp}, after)
	if err == nil && !r.found {
		r, err = m.modify(in, mine, bson.D{{Key: "$unset", Value: unset}, stamp}, after)
	}
	return m.undone(r, err, pending)
}

// undone reports whether a clean-up settles its claim: if it found it, as that was
// sent but once; or if the server now refuses it. A claim that was answered has
// nothing under way.
func (m *mongoStore) undone(r reply, err error, pending bool) (bool, error) {
	if err != nil {
		return false, mongoerr.Mark(err)
	}
	return r.found || !pending || m.server.Load().numbers, nil
}

// session is a fresh one for a claim, nil where the server has none.
func (m *mongoStore) session() (*mongo.Session, error) {
	if !m.server.Load().sessions {
		return nil, nil
	}
	return m.durable.Database().Client().StartSession(options.Session().SetCausalConsistency(false))
}

func end(s *mongo.Session) {
	if s != nil {
		s.EndSession(context.Background()) // no transaction in it: nothing is sent
	}
}

func (m *mongoStore) keep(id string, s *mongo.Session, until mongoclock.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for old, p := range m.pending { // few at any time
		if p.until < m.clock.Now() {
			end(p.session)
			delete(m.pending, old)
		}
	}
	m.pending[id] = pendingClaim{session: s, until: until}
}

func (m *mongoStore) takePending(id string) (pendingClaim, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, is := m.pending[id]
	delete(m.pending, id)
	return p, is
}
