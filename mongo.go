package mongolock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
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

// A mongoStore keeps the holders of a key in one document of a collection. It is
// written to docs/design.md §3 and §4, whose table its commands follow row by row:
//
//	mongo.go          the collection, the server and its clock
//	mongo_acquire.go  acquire, and what follows a refusal
//	mongo_share.go    acquire and join, for those who share a key
//	mongo_joins.go    whose turn it is to join, in this process
//	mongo_grant.go    from an applied claim to a grant: token, time left
//	mongo_transfer.go hand over inside a process, Resume
//	mongo_renew.go    renew, one and many
//	mongo_release.go  release, MinHold's release, break
//	mongo_leave.go    leave, for those who share; clean-up of a join
//	mongo_undo.go     clean-up after an unknown outcome
//	mongo_look.go     reads
//	mongo_attempt.go  the session of an attempt; what is remembered of a lease
//	mongo_doc.go      the document
//	mongo_index.go    the TTL index
//	mongo_feed.go     wake-ups
type mongoStore struct {
	// The caller's collection under our own concerns, whatever it says itself.
	durable *mongo.Collection // majority, journaled
	voted   *mongo.Collection // majority; instead of durable where there is no journal
	soft    *mongo.Collection // w: 1
	feed    mongoFeed

	clock     *mongoclock.Clock
	server    atomic.Pointer[mongoServer] // known once the clock is
	noJournal atomic.Bool
	retries   bool // the driver gives its writes transaction numbers, where the server takes them

	noIndex    bool
	indexed    atomic.Bool // the first grant made the index, or tried to
	indexTries atomic.Int32
	logger     *slog.Logger

	memory mongoMemory
	joins  mongoQueue
	broken mongoFaults
}

// mongoOptions are what New passes on.
type mongoOptions struct {
	noIndex bool
	logger  *slog.Logger             // default: slog.Default()
	now     func() mongoclock.Moment // default: the monotonic clock; tests have their own
}

// mongoFaults take one safety out each, for the tests that show they are needed.
type mongoFaults struct {
	swapWithoutRev    bool // compare-and-swap by key alone
	dropTheLiving     bool // compare-and-swap without the dropped holders' expiry
	unmarked          bool // filters that do not ask for mongolock: 1
	deadlineFromOld   bool // a deadline from the sample at hand, not from the reply's
	undoElsewhere     bool // clean-up in a session of its own
	releaseByKeyAlone bool

	joinWritesMap      bool // a join that writes the whole map of holders
	joinKeepsRev       bool // a join that leaves rev as it is
	joinIgnoresWord    bool // a join that does not ask for a writer's word
	joinDropsTheLiving bool // a join that does not name the end of whom it drops
	deleteWithoutRev   bool // the last to leave deletes by key
	undoDeletes        bool // clean-up of a join that deletes the document
}

// A mongoServer is what the first hello said, as far as it does not change.
type mongoServer struct {
	router   bool // a mongos: its clock is not that of the documents
	set      bool // a member of a replica set, or in front of some
	sessions bool
	numbers  bool // writes may carry transaction numbers
}

func newMongoStore(coll *mongo.Collection, opts mongoOptions) (*mongoStore, error) {
	if coll == nil {
		return nil, errors.New("mongolock: New: the collection is nil")
	}
	if opts.logger == nil {
		opts.logger = slog.Default()
	}
	if opts.now == nil {
		opts.now = mongoclock.Monotonic()
	}
	journaled := true
	m := &mongoStore{
		durable: mongoUnder(coll, &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}),
		voted:   mongoUnder(coll, writeconcern.Majority()),
		soft:    mongoUnder(coll, writeconcern.W1()),
		clock:   mongoclock.New(opts.now),
		retries: mongoRetries(coll.Database().Client()),
		noIndex: opts.noIndex,
		logger:  opts.logger,
		broken:  mongoKnobs(),
	}
	m.feed.now = opts.now
	m.feed.coll = mongoUnder(coll.Database().Collection(coll.Name()+mongoFeedSuffix), writeconcern.W1())
	return m, nil
}

// mongoUnder is coll with our concerns, and with the driver's own codecs: the
// caller's could write a string as anything.
func mongoUnder(coll *mongo.Collection, w *writeconcern.WriteConcern) *mongo.Collection {
	return coll.Clone(options.Collection().
		SetWriteConcern(w).
		SetReadConcern(readconcern.Local()).
		SetReadPreference(readpref.Primary()).
		SetBSONOptions(&options.BSONOptions{}).
		SetRegistry(bson.NewRegistry()))
}

// mongoRetries reports whether the client retries writes, and so numbers them. The
// driver keeps that to itself. Not found counts as no: clean-ups are then repeated
// until the attempt's expiry, which costs commands and harms nobody.
func mongoRetries(c *mongo.Client) bool {
	field := reflect.ValueOf(c).Elem().FieldByName("retryWrites")
	return field.IsValid() && field.Kind() == reflect.Bool && field.Bool()
}

// bare takes the caller's session out of a context: a lock asked for inside a
// transaction must neither wait for its commit nor go with its abort.
func bare(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }

// read is the server's clock now; hello asks for it if nobody has told yet.
func (m *mongoStore) read(ctx context.Context) (mongoclock.Reading, error) {
	if m.server.Load() != nil {
		if r, known := m.clock.Read(); known {
			return r, nil
		}
	}
	if _, _, err := m.hello(ctx); err != nil {
		return mongoclock.Reading{}, err
	}
	r, _ := m.clock.Read()
	return r, nil
}

// readFresh is read, with a new sample if the one at hand is too old to judge who
// has run out.
func (m *mongoStore) readFresh(ctx context.Context) (mongoclock.Reading, error) {
	r, err := m.read(ctx)
	if err != nil || r.Fresh || m.server.Load().router {
		return r, err
	}
	if _, _, err := m.hello(ctx); err != nil {
		return mongoclock.Reading{}, err
	}
	r, _ = m.clock.Read()
	return r, nil
}

// hello asks the server who it is and what its clock shows, and takes the answer
// for a sample. It tells when it was sent.
func (m *mongoStore) hello(ctx context.Context) (server time.Time, sent mongoclock.Moment, err error) {
	ctx = bare(ctx)
	db := m.soft.Database()
	sent = m.clock.Now()
	reply, err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if mongoerr.ClassOf(err) == mongoerr.NoCommand { // 4.4.0 and 4.4.1
		sent = m.clock.Now()
		reply, err = db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
	}
	if err != nil {
		return time.Time{}, 0, err
	}
	server, ok := mongoTime(reply.Lookup("localTime"))
	if !ok {
		return time.Time{}, 0, errors.New("the server does not tell its time")
	}
	if kind, _ := reply.Lookup("msg").StringValueOK(); kind == "isdbgrid" {
		m.clock.ObserveForWriting(server, sent)
	} else {
		m.clock.Observe(server, sent)
	}
	if m.server.Load() != nil {
		return server, sent, nil
	}
	return server, sent, m.meet(ctx, reply)
}

// meet keeps what a first hello says of the server, unless it is none for us.
func (m *mongoStore) meet(ctx context.Context, hello bson.Raw) error {
	kind, _ := hello.Lookup("msg").StringValueOK()
	_, member := hello.Lookup("setName").StringValueOK()
	s := &mongoServer{router: kind == "isdbgrid"}
	s.set = s.router || member
	s.sessions = hello.Lookup("logicalSessionTimeoutMinutes").IsNumber()
	s.numbers = s.sessions && m.retries && (s.router || member)
	if s.router {
		if err := m.refuseSharded(ctx); err != nil {
			return err
		}
	}
	m.server.Store(s)
	return nil
}

// refuseSharded answers an error for a sharded collection: each shard has a clock
// of its own, and one that judged by another's would judge wrong. Whether it is
// one, collStats tells, or under a strict API the number of shards that answer
// $collStats.
func (m *mongoStore) refuseSharded(ctx context.Context) error {
	db, name := m.soft.Database(), m.soft.Name()
	sharded := func() error {
		return fmt.Errorf("the collection %s.%s is sharded: locks need one that is not", db.Name(), name)
	}
	stats, err := db.RunCommand(ctx, bson.D{{Key: "collStats", Value: name}}).Raw()
	if err == nil {
		if is, _ := stats.Lookup("sharded").BooleanOK(); is {
			return sharded()
		}
		return nil
	}
	cursor, err := m.soft.Aggregate(ctx, mongo.Pipeline{{{Key: "$collStats", Value: bson.D{{Key: "count", Value: bson.D{}}}}}})
	if err != nil {
		if c := mongoerr.ClassOf(err); c == mongoerr.Refused || c == mongoerr.NoCommand {
			return nil // not there yet, or no right to look
		}
		return err
	}
	defer cursor.Close(ctx)
	shards := 0
	for cursor.Next(ctx) {
		shards++
	}
	if shards > 1 {
		return sharded()
	}
	return cursor.Err()
}

// A mongoReply is the answer of one findAndModify.
type mongoReply struct {
	record mongoRecord
	found  bool
	sent   mongoclock.Moment // when the command was
	took   time.Duration
}

// modify updates one document and answers its after-image. Where there is no
// journal to wait for it is sent once more without: the server refuses that before
// it touches anything, so it is no second attempt.
func (m *mongoStore) modify(ctx context.Context, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (mongoReply, error) {
	return m.journaled(func(coll *mongo.Collection) (mongoReply, error) {
		return m.modifyIn(ctx, coll, filter, update, opts)
	})
}

func (m *mongoStore) modifyIn(ctx context.Context, coll *mongo.Collection, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (mongoReply, error) {
	return m.reply(func() (bson.Raw, error) { return coll.FindOneAndUpdate(ctx, filter, update, opts).Raw() }, readRecord)
}

// remove deletes one document, of which it answers the words that were left in it.
func (m *mongoStore) remove(ctx context.Context, coll *mongo.Collection, filter bson.D) (mongoReply, error) {
	return m.reply(func() (bson.Raw, error) { return coll.FindOneAndDelete(ctx, filter).Raw() }, readWords)
}

func (m *mongoStore) removeDurably(ctx context.Context, filter bson.D) (mongoReply, error) {
	return m.journaled(func(coll *mongo.Collection) (mongoReply, error) { return m.remove(ctx, coll, filter) })
}

func (m *mongoStore) reply(command func() (bson.Raw, error), read func(bson.Raw) mongoRecord) (mongoReply, error) {
	r := mongoReply{sent: m.clock.Now()}
	image, err := command()
	r.took = m.clock.Now().Sub(r.sent)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.found, r.record = true, read(image)
	return r, nil
}

// journaled runs a write on the durable collection, and where j is refused for want
// of a journal, once more and from then on without.
func (m *mongoStore) journaled(write func(*mongo.Collection) (mongoReply, error)) (mongoReply, error) {
	if m.noJournal.Load() {
		return write(m.voted)
	}
	r, err := write(m.durable)
	if mongoerr.ClassOf(err) == mongoerr.NoJournal {
		m.noJournal.Store(true)
		return write(m.voted)
	}
	return r, err
}

// timed takes the at of an after-image for a sample: the command that answers with
// it drew it.
func (m *mongoStore) timed(r mongoReply) {
	if !r.record.at.IsZero() {
		m.clock.Observe(r.record.at, r.sent)
	}
}

// The one shape of a findOneAndUpdate here: after-images.
var (
	mongoAfter  = options.FindOneAndUpdate().SetReturnDocument(options.After)
	mongoUpsert = options.FindOneAndUpdate().SetReturnDocument(options.After).SetUpsert(true)
)

// knownMode answers an error for a mode that there is not.
func knownMode(mode store.Mode) error {
	switch mode {
	case store.Exclusive, store.Shared, store.Permits:
		return nil
	}
	return joinNotApplied(fmt.Errorf("mode %q: %w", mode, errors.ErrUnsupported))
}

// inMode asks for a document in that mode.
func inMode(mode store.Mode) bson.E { return bson.E{Key: fieldMode, Value: string(mode)} }
