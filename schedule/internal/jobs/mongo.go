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

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// stale is how old a sample of the server's clock may get. A lost claim brings no new
// sample, so after one with an older sample the store asks for the time.
const stale = 10 * time.Minute

// Mongo keeps each job in one document:
//
//	{ _id: "nightly-report", schedule: 1,
//	  decided: Date, ended: Date, next: Date, asked: Date, paused: true, plan: "cron 0 3 * * *",
//	  busy: { id, until },
//	  runs: { "<id>": { due, attempt, owner, began, expireAt } },
//	  past: { "<0 to n-1>": { id, due, attempt, owner, began, ended, outcome, error } },
//	  keep: n, seq: <claims so far>, at: Date }
//
// The commands use only classic operators, on single fields. A field that a late command
// could lower is moved by $max. docs/internals/design.md §4 says why expiry, sessions and deadlines
// are as they are; the same rules hold here.
type Mongo struct{ base *command.Collection }

// NewMongo makes a Store of a collection, on a local clock.
func NewMongo(coll *mongo.Collection, now func() server.Moment) *Mongo {
	return &Mongo{command.New(coll, now)}
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

// read returns the server's clock. A mongos shows its own clock, which is good enough for
// a timer, but must not decide which run has run out.
func (m *Mongo) read(ctx context.Context) (server.Reading, error) {
	r, err := m.base.Read(ctx)
	if err != nil {
		err = server.NotApplied(err)
	}
	return r, err
}

// sample asks for the time. Through a mongos that takes a write to the job's own
// document, if it exists.
func (m *Mongo) sample(ctx context.Context, job string) error {
	if _, _, err := m.base.Hello(ctx); err != nil {
		return server.NotApplied(err)
	}
	if !m.base.Kind().Router {
		return nil
	}
	_, err := m.modify(command.Bare(ctx), bson.D{{Key: "_id", Value: job}, ours}, bson.D{stamp}, after)
	return err
}

// A reply holds the after-image of a findOneAndUpdate.
type reply struct {
	command.Reply
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
	r.Reply, err = m.base.Modify(ctx, m.base.Durable, filter, update, opts)
	if err != nil || !r.Found() {
		return r, err
	}
	if r.doc, err = readDocument(r.Image); err == nil {
		m.base.Timed(r.doc.At, r.Sent)
	}
	return r, err
}

// Read reads the jobs first and the clock after them. A run that has run out by that clock is
// over, unless it was renewed in between; the filter of a take-over notices that. The clock is
// not read if no run is under way and the past is not asked for: then a sample of some minutes
// ago is good enough.
func (m *Mongo) Read(ctx context.Context, names []string, detail Detail) ([]State, error) {
	ctx = command.Bare(ctx)
	all := make([]State, len(names))
	at := make(map[string]int, len(names))
	for i, name := range names {
		all[i].Job, at[name] = name, i
	}
	const most = 1000 // names that a caller gives
	opts := options.Find().SetBatchSize(int32(min(len(names)+1, most+1)))
	if detail == WithoutPast {
		opts.SetProjection(withoutPast)
	}
	cursor, err := m.base.Soft.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}}, opts)
	if err != nil {
		return nil, server.Classified(err)
	}
	defer cursor.Close(ctx)
	var foreign []error
	for cursor.Next(ctx) {
		doc, err := readDocument(cursor.Current)
		if err != nil {
			foreign = append(foreign, err)
			id, _ := cursor.Current.Lookup("_id").StringValueOK()
			if i, asked := at[id]; asked {
				all[i].Foreign = err
			}
			continue
		}
		if i, asked := at[doc.ID]; asked {
			all[i] = doc.state()
			m.base.Saw(doc.ID, doc.marks(), m.base.Clock.Now())
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, err
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
	}
	return all, errors.Join(foreign...)
}

// Names lists the jobs.
func (m *Mongo) Names(ctx context.Context) ([]string, error) {
	ctx = command.Bare(ctx)
	cursor, err := m.base.Soft.Find(ctx, bson.D{ours}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, server.Classified(err)
	}
	defer cursor.Close(ctx)
	var names []string
	for cursor.Next(ctx) {
		if name, ok := cursor.Current.Lookup("_id").StringValueOK(); ok {
			names = append(names, name)
		}
	}
	return names, cursor.Err()
}

// Forget deletes a job, but not a document that is not marked as one. It says so.
func (m *Mongo) Forget(ctx context.Context, name string) error {
	ctx = command.Bare(ctx)
	r, err := m.base.Remove(ctx, m.base.Durable, bson.D{{Key: "_id", Value: name}, ours})
	if err != nil || r.Found() {
		return server.Classified(err)
	}
	if _, err := m.Read(ctx, []string{name}, WithoutPast); errors.Is(err, store.ErrForeign) {
		return err
	}
	return nil
}
