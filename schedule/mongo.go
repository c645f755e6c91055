package schedule

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// New makes a Scheduler whose jobs are documents of coll: one per job, its name the
// _id. It sends nothing yet. Every process that shares the jobs uses the same
// collection, and keeps nothing else in it. It needs no index.
//
// Write concern, read concern and read preference are the library's own.
func New(coll *mongo.Collection, opts ...Option) (*Scheduler, error) {
	if coll == nil {
		_, err := newConfig(opts)
		return nil, errors.Join(errors.New("schedule: New: the collection is nil"), err)
	}
	return NewWithStore(newMongo(coll, mongoclock.Monotonic()), opts...)
}

// stale is how old a sample of the server's clock gets before a lost claim, which
// brings none, is followed by a question for the time.
const stale = 10 * time.Minute

// A mongoStore keeps each job in one document:
//
//	{ _id: "nightly-report", schedule: 1,
//	  decided: Date, next: Date, plan: "cron 0 3 * * *",
//	  busy: { id, until },
//	  runs: { "<id>": { fire, attempt, owner, began, expireAt } },
//	  past: { "<0 to n-1>": { id, fire, attempt, owner, began, ended, outcome, error } },
//	  keep: n, seq: <claims so far>, at: Date }
//
// Only classic operators, on single fields: what a late command could lower is
// moved by $max. docs/design.md §4 says why expiry, sessions and deadlines are as they
// are; the same rules hold here.
type mongoStore struct {
	durable   *mongo.Collection // majority, journaled
	voted     *mongo.Collection // majority, where there is no journal
	clock     *mongoclock.Clock
	server    atomic.Pointer[mongoServer]
	noJournal atomic.Bool
	retries   bool // the driver numbers its writes, where the server takes that

	mu      sync.Mutex // protects pending
	pending map[string]pendingClaim
}

type mongoServer struct{ router, sessions, numbers bool }

// A pendingClaim is one of unknown outcome: its clean-up goes into its session, whose
// newer transaction number has the server refuse it if it comes after that.
type pendingClaim struct {
	session *mongo.Session
	until   mongoclock.Moment
}

func newMongo(coll *mongo.Collection, now func() mongoclock.Moment) *mongoStore {
	under := func(w *writeconcern.WriteConcern) *mongo.Collection {
		return coll.Clone(options.Collection().SetWriteConcern(w).SetReadConcern(readconcern.Local()).
			SetReadPreference(readpref.Primary()).SetBSONOptions(&options.BSONOptions{}).SetRegistry(bson.NewRegistry()))
	}
	journaled := true
	retries := reflect.ValueOf(coll.Database().Client()).Elem().FieldByName("retryWrites")
	return &mongoStore{
		durable: under(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}),
		voted:   under(writeconcern.Majority()),
		clock:   mongoclock.New(now),
		retries: retries.IsValid() && retries.Kind() == reflect.Bool && retries.Bool(), // else clean-ups are repeated needlessly
		pending: make(map[string]pendingClaim),
	}
}

// bare takes the caller's session out of a context.
func bare(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }

// Now is the likeliest time on the server. A timer may rest on it, nothing else.
func (m *mongoStore) Now() time.Time {
	r, known := m.clock.Read()
	if !known {
		return time.Time{}
	}
	return r.Likely.UTC()
}

// read is the server's clock, which hello tells if nobody has yet.
func (m *mongoStore) read(ctx context.Context) (mongoclock.Reading, error) {
	if r, known := m.clock.Read(); known && m.server.Load() != nil {
		return r, nil
	}
	if err := m.hello(ctx); err != nil {
		return mongoclock.Reading{}, err
	}
	r, _ := m.clock.Read()
	return r, nil
}

// hello asks the server who it is and what its clock shows. A mongos shows a clock
// of its own: good for a timer, no judge of who has run out.
func (m *mongoStore) hello(ctx context.Context) error {
	db := m.durable.Database()
	sent := m.clock.Now()
	reply, err := db.RunCommand(bare(ctx), bson.D{{Key: "hello", Value: 1}}).Raw()
	if mongoerr.ClassOf(err) == mongoerr.NoCommand { // 4.4.0 and 4.4.1
		sent = m.clock.Now()
		reply, err = db.RunCommand(bare(ctx), bson.D{{Key: "isMaster", Value: 1}}).Raw()
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", err, store.ErrNotApplied)
	}
	local, ok := reply.Lookup("localTime").TimeOK()
	if !ok {
		return fmt.Errorf("the server does not tell its time (%w)", store.ErrNotApplied)
	}
	kind, _ := reply.Lookup("msg").StringValueOK()
	_, member := reply.Lookup("setName").StringValueOK()
	s := &mongoServer{router: kind == "isdbgrid", sessions: reply.Lookup("logicalSessionTimeoutMinutes").IsNumber()}
	s.numbers = s.sessions && m.retries && (s.router || member)
	if s.router {
		m.clock.ObserveForWriting(local, sent)
	} else {
		m.clock.Observe(local, sent)
	}
	m.server.Store(s)
	return nil
}

// sample asks for the time: through a mongos by a write to the job's own document,
// if there is one.
func (m *mongoStore) sample(ctx context.Context, job string) error {
	if err := m.hello(ctx); err != nil || !m.server.Load().router {
		return err
	}
	_, err := m.modify(bare(ctx), bson.D{{Key: "_id", Value: job}, ours}, bson.D{stamp}, after)
	return err
}

// A reply is the after-image of a findOneAndUpdate.
type reply struct {
	doc   document
	found bool
	sent  mongoclock.Moment
}

var (
	after  = options.FindOneAndUpdate().SetReturnDocument(options.After)
	upsert = options.FindOneAndUpdate().SetReturnDocument(options.After).SetUpsert(true)
)

// modify sends one update, and once more without j where there is no journal, which
// the server refuses before it touches anything.
func (m *mongoStore) modify(ctx context.Context, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (reply, error) {
	coll := m.durable
	if m.noJournal.Load() {
		coll = m.voted
	}
	r := reply{sent: m.clock.Now()}
	raw, err := coll.FindOneAndUpdate(ctx, filter, update, opts).Raw()
	if coll == m.durable && mongoerr.ClassOf(err) == mongoerr.NoJournal {
		m.noJournal.Store(true)
		return m.modify(ctx, filter, update, opts)
	}
	if errors.Is(err, mongo.ErrNoDocuments) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if r.doc, err = readDocument(raw); err != nil {
		return r, err
	}
	r.found = true
	m.clock.Observe(r.doc.At, r.sent)
	return r, nil
}

// Look reads jobs, and the clock after them: what had run out by then had run out,
// unless it was renewed since, which a takeover's filter sees.
func (m *mongoStore) Look(ctx context.Context, names []string) ([]State, error) {
	ctx = bare(ctx)
	all := make([]State, len(names))
	at := make(map[string]int, len(names))
	for i, name := range names {
		all[i].Job, at[name] = name, i
	}
	cursor, err := m.durable.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}},
		options.Find().SetBatchSize(int32(min(len(names)+1, chunkSize+1))))
	if err != nil {
		return nil, mongoerr.Mark(err)
	}
	defer cursor.Close(ctx)
	var strangers []error
	for cursor.Next(ctx) {
		doc, err := readDocument(cursor.Current)
		if err != nil {
			strangers = append(strangers, err)
			continue
		}
		if i, asked := at[doc.ID]; asked {
			all[i] = doc.state()
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, err
	}
	busy := slices.IndexFunc(all, func(s State) bool { return len(s.Runs) > 0 })
	if err := m.sample(ctx, all[max(0, busy)].Job); err != nil {
		return nil, err
	}
	now, _ := m.clock.Read()
	for i := range all {
		all[i].Now = now.Lowest.UTC()
		if now.Lowest.IsZero() {
			all[i].Now = now.Likely.UTC()
		}
	}
	return all, errors.Join(strangers...)
}

func (m *mongoStore) Names(ctx context.Context) ([]string, error) {
	ctx = bare(ctx)
	cursor, err := m.durable.Find(ctx, bson.D{ours}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, mongoerr.Mark(err)
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

func (m *mongoStore) Forget(ctx context.Context, name string) error {
	_, err := m.durable.DeleteOne(bare(ctx), bson.D{{Key: "_id", Value: name}, ours})
	return mongoerr.Mark(err)
}
