package jobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// stale is how old a sample of the server's clock may get. A lost claim brings no new
// sample, so after one with an older sample the store asks for the time.
const stale = 10 * time.Minute

// Mongo keeps each job in one document; see document. The commands use only classic operators, and no
// expressions. docs/internals/design.md §4 says why expiry, sessions and deadlines are as they are; the
// same rules hold here.
type Mongo struct{ base *server.Collection }

// NewMongo makes a Store of a collection, on a local clock.
func NewMongo(coll *mongo.Collection, now func() server.Moment) *Mongo {
	return &Mongo{server.New(coll, now)}
}

// LogTo sets where it logs.
func (m *Mongo) LogTo(l *slog.Logger) { m.base.LogTo(l) }

// Now returns the likeliest time on the server. Only timers may go by it.
func (m *Mongo) Now() time.Time {
	r, known := m.base.Clock.Read()
	if !known {
		return time.Time{}
	}
	return r.Likely.UTC()
}

// sample asks for the time. Through a mongos that takes a write to the job's own
// document, if it exists: its own clock must not decide which run has run out.
func (m *Mongo) sample(ctx context.Context, job string) error {
	if _, _, err := m.base.Hello(ctx); err != nil {
		return server.NotApplied(err)
	}
	if !m.base.Kind().Router {
		return nil
	}
	_, err := m.modify(server.Bare(ctx), named(job), bson.D{stamp}, after)
	return err
}

// A reply holds the after-image of a findOneAndUpdate.
type reply struct {
	server.Reply
	doc document
}

// The shapes of an update. Its image leaves out the past, which may be large.
var (
	withoutPast = bson.D{{Key: "past", Value: 0}}

	after  = options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(withoutPast)
	upsert = options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(withoutPast).SetUpsert(true)
)

// modify sends one update.
func (m *Mongo) modify(ctx context.Context, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (r reply, err error) {
	r.Reply, err = m.base.Modify(ctx, m.base.MajorityJournaled, filter, update, opts)
	if err != nil || !r.Found() {
		return r, err
	}
	if r.doc, err = readDocument(r.Image); err == nil {
		m.base.Timed(r.doc.At, r.Sent)
	}
	return r, err
}

// change sends an update that means nothing if its filter matches nothing.
func (m *Mongo) change(ctx context.Context, filter, update bson.D, otherwise error) error {
	r, err := m.modify(server.Bare(ctx), filter, append(update, stamp), after)
	if err == nil && !r.Found() {
		return otherwise
	}
	return server.Classified(err)
}

// Read reads the jobs first and the clock after them. A run that has run out by that clock is
// over, unless it was renewed in between; the filter of a repetition notices that. The clock is
// not read if no run is under way and the past is not asked for: then a sample of some minutes
// ago is good enough.
func (m *Mongo) Read(ctx context.Context, names []string, detail Detail) ([]State, error) {
	ctx = server.Bare(ctx)
	all := make([]State, len(names))
	at := make(map[string]int, len(names))
	for i, name := range names {
		all[i].Job, at[name] = name, i
	}
	opts := options.Find()
	if detail == WithoutPast {
		opts.SetProjection(withoutPast)
	}
	var foreign []error
	marks := map[string]server.HolderState{} // by the IDs of runs
	err := m.base.FindAll(ctx, m.base.W1, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}}, len(names), func(raw bson.Raw) {
		doc, err := readDocument(raw)
		if err != nil {
			foreign = append(foreign, err)
			doc.Job, _ = raw.Lookup("_id").StringValueOK()
		}
		i, asked := at[doc.Job] // under a collation there may be others
		switch {
		case !asked:
		case err != nil:
			all[i].Foreign = err
		default:
			all[i] = doc.state()
			seen := doc.marks()
			m.base.Saw(doc.Job, seen, m.base.Clock.Now())
			for _, r := range seen {
				marks[r.ID] = r
			}
		}
	}, opts)
	if err != nil {
		return nil, server.Classified(err)
	}
	busy := slices.IndexFunc(all, func(s State) bool { return len(s.Runs) > 0 })
	now, known := m.base.Clock.Read()
	if detail == WithPast || busy >= 0 || !known || now.Age > stale {
		if err := m.sample(ctx, all[max(0, busy)].Job); err != nil {
			return nil, err
		}
		now = m.base.Now()
	}
	for i := range all {
		all[i].Now = now.Lowest.UTC()
		if now.Lowest.IsZero() {
			all[i].Now = now.Likely.UTC()
		}
		for n, r := range all[i].Runs { // one whose date is far off is over as soon as it has not been renewed for its TTL
			if by := m.base.KnownBy(r.Job, marks[r.ID], all[i].Now); !by.IsZero() && by.Before(r.ExpireAt) {
				all[i].Runs[n].ExpireAt = by.UTC()
			}
		}
	}
	return all, errors.Join(foreign...)
}

// Register is an upsert that changes nothing if the document exists.
func (m *Mongo) Register(ctx context.Context, name, plan string, now time.Time) (State, error) {
	first := bson.D{{Key: "plans", Value: []Span{{plan, now}}}, {Key: "edition", Value: int64(1)}, {Key: "decided", Value: date(now)},
		{Key: "seq", Value: now.UnixMilli()}, {Key: "open", Value: int64(0)}, {Key: "changed", Value: date(now)}}
	var r reply
	var err error
	for range 2 { // of two that insert it at once one is told of a duplicate, or by SecantusDB of nothing
		r, err = m.modify(server.Bare(ctx), named(name), bson.D{{Key: "$setOnInsert", Value: first}, stamp}, upsert)
		if err == nil && r.Found() || err != nil && server.ClassOf(err) != server.DuplicateID {
			break
		}
	}
	switch {
	case server.ClassOf(err) == server.DuplicateID:
		return State{}, errNoJob(name)
	case err == nil && !r.Found():
		err = server.ErrNoTrace
	}
	if err != nil {
		return State{}, server.Classified(err)
	}
	m.base.Saw(name, r.doc.marks(), r.Seen())
	s := r.doc.state()
	s.Now = r.doc.At
	return s, nil
}

// Plan names what was seen. A claim that came between may have decided due times of the new plan.
func (m *Mongo) Plan(ctx context.Context, seen State, plans []Span) error {
	filter := append(named(seen.Job), bson.E{Key: "edition", Value: seen.Edition}, bson.E{Key: "decided", Value: date(seen.Decided)}, unchanged(seen.Changed))
	set := bson.D{{Key: "plans", Value: plans}, {Key: "changed", Value: m.next(seen.Changed)}}
	return m.change(ctx, filter, bson.D{{Key: "$set", Value: set}, {Key: "$inc", Value: bson.D{{Key: "edition", Value: int64(1)}}}}, ErrNotDue)
}

// unchanged matches a document that has not been changed since it was read. Each change of a job raises the field, so one that
// is applied late, after another, finds nothing.
func unchanged(seen time.Time) bson.E {
	return bson.E{Key: "changed", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: date(seen)}}}}}
}

// next is the time of a change, whatever the clock says.
func (m *Mongo) next(changed time.Time) bson.DateTime { return max(date(m.Now()), date(changed)+1) }

// Change reads the job, and is one update or delete of what it has seen. Its dates are read from the server's clock before. That
// they are late or early by some milliseconds does not matter. It needs no bound but ctx: each turn that finds the job changed is
// one in which another call has succeeded, and those are a person's, or once of each new plan.
func (m *Mongo) Change(ctx context.Context, name string, change Change) (changed bool, err error) {
	ctx = server.Bare(ctx)
	if _, _, err := m.base.Hello(ctx); err != nil {
		return false, server.NotApplied(err)
	}
	for {
		r, err := m.base.Find(ctx, named(name), options.FindOne().SetProjection(withoutPast))
		if err != nil || !r.Found() {
			return false, server.Classified(err)
		}
		if changed, err = m.changeSeen(ctx, name, r.Image, change); !errors.Is(err, ErrNotDue) { // otherwise it was changed meanwhile
			return changed, err
		}
	}
}

func (m *Mongo) changeSeen(ctx context.Context, name string, raw bson.Raw, change Change) (changed bool, err error) {
	seen, _ := server.Time(raw.Lookup("changed"))
	filter := append(named(name), unchanged(seen))
	if change == Forget { // also what is not a job any more
		r, err := m.base.Remove(ctx, m.base.MajorityJournaled, filter)
		if err == nil && !r.Found() {
			return false, ErrNotDue
		}
		return true, server.Classified(err)
	}
	doc, err := readDocument(raw)
	if err != nil || change == AskRun && doc.Paused {
		return false, err
	}
	now := m.Now()
	set, update := bson.D{{Key: "changed", Value: m.next(seen)}}, bson.D{}
	switch {
	case change == AskRun:
		set = append(set, bson.E{Key: "asked", Value: date(now)})
	case change == Pause && !doc.Paused:
		set = append(set, bson.E{Key: "paused", Value: true}, bson.E{Key: "pausedAt", Value: date(now)})
	case change == Resume && doc.Paused:
		set = append(set, bson.E{Key: "plans", Value: resumed(doc.Plans, doc.PausedAt, now)})
		update = bson.D{{Key: "$inc", Value: bson.D{{Key: "edition", Value: int64(1)}}}, {Key: "$unset", Value: bson.D{{Key: "paused", Value: ""}}}}
	} // otherwise it is as it should be, and an earlier call that comes late is to find nothing
	err = m.change(ctx, filter, append(update, bson.E{Key: "$set", Value: set}), ErrNotDue)
	return err == nil && (change != Resume || doc.Paused), err
}

// Changed is one find, which mostly finds nothing.
func (m *Mongo) Changed(ctx context.Context, names []string, since time.Time) (map[string]time.Time, error) {
	changed := make(map[string]time.Time)
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}, {Key: "changed", Value: bson.D{{Key: "$gt", Value: date(since)}}}, ours}
	err := m.base.FindAll(server.Bare(ctx), m.base.W1, filter, len(names), func(raw bson.Raw) {
		name, isName := raw.Lookup("_id").StringValueOK()
		at, isTime := server.Time(raw.Lookup("changed"))
		if isName && isTime {
			changed[name] = at
		}
	}, options.Find().SetProjection(bson.D{{Key: "changed", Value: 1}}))
	return changed, server.Classified(err)
}

// Names lists the jobs.
func (m *Mongo) Names(ctx context.Context) (names []string, err error) {
	const most = 9999 // in one batch
	err = m.base.FindAll(server.Bare(ctx), m.base.W1, bson.D{ours}, most, func(raw bson.Raw) {
		if name, ok := raw.Lookup("_id").StringValueOK(); ok {
			names = append(names, name)
		}
	}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	return names, server.Classified(err)
}
