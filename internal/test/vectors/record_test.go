package vectors

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/engine"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
)

const (
	database = "mongolock_vectors"
	locks    = "locks"
	wakeUps  = "locks.wake"
)

// A fixture is a server in memory, and processes on it whose commands are recorded.
type fixture struct {
	t     testing.TB
	ctx   context.Context
	began time.Time
	raw   *mongo.Collection // past the recording
	link  *memmongo.Link

	store      *mongostore.Store // of the process whose step it is
	driver     *mongo.Client     // its driver
	beforeSwap func()            // runs once, before a takeover is sent

	started map[int64]bson.Raw // commands under way
	sent    []exchange
}

// An exchange is one command, with its reply.
type exchange struct{ command, reply bson.Raw }

func newFixture(t testing.TB) *fixture {
	t.Helper()
	s := &fixture{t: t, ctx: t.Context(), link: memmongo.New().Link(), began: time.Now(), started: map[int64]bson.Raw{}}
	s.raw = s.connect(nil).Database(database).Collection(locks)
	s.ok(s.raw.Database().CreateCollection(s.ctx, wakeUps, options.CreateCollection().SetCapped(true).SetSizeInBytes(wakeSize)))
	s.store = s.another()
	return s
}

func (s *fixture) connect(monitor *event.CommandMonitor) *mongo.Client {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://memory:27017/?directConnection=true").SetDialer(s.link).SetMonitor(monitor))
	s.ok(err)
	s.t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(s.ctx)) })
	return client
}

// another returns the store of a process that remembers nothing.
func (s *fixture) another() *mongostore.Store {
	s.driver = s.connect(&event.CommandMonitor{
		Started:   func(_ context.Context, e *event.CommandStartedEvent) { s.begins(e) },
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { s.ends(e.RequestID, e.Reply) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { s.fails(e.RequestID, e.Failure) },
	})
	one, err := mongostore.New(s.driver.Database(database).Collection(locks), mongostore.WithoutIndex(), mongostore.WithLogger(slog.New(slog.DiscardHandler)))
	s.ok(err)
	return one
}

// begins runs before a command is sent.
func (s *fixture) begins(e *event.CommandStartedEvent) {
	command := slices.Clone(e.Command)
	if run := s.beforeSwap; run != nil && isSwap(command) {
		s.beforeSwap = nil
		run()
	}
	s.started[e.RequestID] = command
}

func (s *fixture) ends(id int64, reply bson.Raw) {
	s.sent = append(s.sent, exchange{s.started[id], slices.Clone(reply)})
}

// fails records the one refusal that the library's steps meet here. The error is of a type that the
// driver keeps to itself.
func (s *fixture) fails(id int64, err error) {
	s.t.Helper()
	require.ErrorContains(s.t, err, "E11000")
	reply, err := bson.Marshal(bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: int32(duplicateKey)}})
	s.ok(err)
	s.ends(id, reply)
}

const duplicateKey = 11000

// isSwap reports whether a command takes a key over that somebody had: its filter names the
// revision, but it does not insert.
func isSwap(command bson.Raw) bool {
	_, missing := command.LookupErr("query", "rev")
	upserts, _ := command.Lookup("upsert").BooleanOK()
	return missing == nil && !upserts
}

func (s *fixture) ok(err error) {
	s.t.Helper()
	require.NoError(s.t, err)
}

// is fails unless an error is the one that a step must have; nil is none.
func (s *fixture) is(want, err error) {
	s.t.Helper()
	if want == nil {
		s.ok(err)
		return
	}
	require.ErrorIs(s.t, err, want)
}

// acquire is the holder's claim, whose process remembers it. Other claims are each of a process that
// knows nothing.
func (s *fixture) acquire(c store.Claim) {
	s.t.Helper()
	_, err := s.store.Acquire(s.ctx, c)
	s.ok(err)
}

func (s *fixture) takes(c store.Claim) {
	s.t.Helper()
	_, err := s.another().Acquire(s.ctx, c)
	s.ok(err)
}

func (s *fixture) refused(c store.Claim) *store.HeldError {
	s.t.Helper()
	_, err := s.another().Acquire(s.ctx, c)
	var held *store.HeldError
	require.ErrorAs(s.t, err, &held)
	return held
}

// asks is a claim that is refused, and tells the holders that it waits.
func (s *fixture) asks(c store.Claim) {
	s.t.Helper()
	wanted := engine.Wanted(&s.refused(c).Status)
	require.NotEmpty(s.t, wanted)
	s.ok(s.store.Notify(s.ctx, wanted...))
}

func (s *fixture) foreign(c store.Claim) {
	s.t.Helper()
	_, err := s.another().Acquire(s.ctx, c)
	require.ErrorIs(s.t, err, store.ErrForeign)
}

func (s *fixture) renew(id string, want error) {
	s.t.Helper()
	s.is(want, s.store.Renew(s.ctx, []store.Renewal{{Ref: ref(id), TTL: ttl}})[0].Err)
}

// broken renews a holder that an operator has broken.
func (s *fixture) broken(id string) {
	s.t.Helper()
	var told *store.BrokenError
	require.ErrorAs(s.t, s.store.Renew(s.ctx, []store.Renewal{{Ref: ref(id), TTL: ttl}})[0].Err, &told)
}

func (s *fixture) release(id string, want error) {
	s.t.Helper()
	_, err := s.store.Release(s.ctx, store.ReleaseRequest{Ref: ref(id)})
	s.is(want, err)
}

func (s *fixture) releaseToLine(id string) {
	s.t.Helper()
	_, err := s.store.Release(s.ctx, store.ReleaseRequest{Ref: ref(id), Line: true})
	s.ok(err)
}

func (s *fixture) undo(c store.Claim) {
	s.t.Helper()
	_, err := s.store.Undo(s.ctx, c.Ref, nil)
	s.ok(err)
}

// undoHandOver cleans up after the claim of a hand-over.
func (s *fixture) undoHandOver(id, from string) {
	s.t.Helper()
	was := ref(from)
	_, err := s.store.Undo(s.ctx, ref(id), &was)
	s.ok(err)
}

func (s *fixture) handsOver(from, to string, want error) {
	s.t.Helper()
	_, err := s.store.Transfer(s.ctx, ref(from), claim(to))
	s.is(want, err)
}

// keeps releases a holder that stays for a while, as under MinHold.
func (s *fixture) keeps(c store.Claim) {
	s.t.Helper()
	_, err := s.store.Release(s.ctx, store.ReleaseRequest{Ref: c.Ref, Keep: 2 * tick})
	s.ok(err)
}

// givesBack releases a claim of any mode.
func (s *fixture) givesBack(c store.Claim) {
	s.t.Helper()
	_, err := s.store.Release(s.ctx, store.ReleaseRequest{Ref: c.Ref})
	s.ok(err)
}

func (s *fixture) mismatches(c store.Claim) {
	s.t.Helper()
	_, err := s.another().Acquire(s.ctx, c)
	require.ErrorIs(s.t, err, store.ErrModeMismatch)
}

func (s *fixture) leave(p store.Place) {
	s.t.Helper()
	_, err := s.store.Leave(s.ctx, key, p)
	s.ok(err)
}

// freed returns when the last holder left.
func (s *fixture) freed() time.Time {
	s.t.Helper()
	var doc struct{ Freed time.Time }
	s.ok(s.raw.FindOne(s.ctx, bson.D{{Key: "_id", Value: key}}).Decode(&doc))
	require.False(s.t, doc.Freed.IsZero())
	return doc.Freed
}

func (s *fixture) tell(kind string, p store.Place) {
	s.t.Helper()
	s.ok(s.store.Notify(s.ctx, store.Notice{Topic: store.TopicLocks, Key: key, Kind: kind, To: p.Address(), Place: p}))
}

// last returns the command that was sent last, and again sends it a second time, as a network
// may.
func (s *fixture) last() bson.Raw { return s.sent[len(s.sent)-1].command }

func (s *fixture) again(command bson.Raw) {
	s.t.Helper()
	var bare bson.D
	s.ok(bson.Unmarshal(command, &bare))
	bare = slices.DeleteFunc(bare, func(e bson.E) bool {
		return e.Key == "lsid" || e.Key == "txnNumber" || e.Key == "$db" || e.Key == "$clusterTime"
	})
	s.ok(s.driver.Database(database).RunCommand(s.ctx, bare).Err())
}

// runOut sets the end of a key and of its holder to two minutes ago, as if that had stopped to renew.
func (s *fixture) runOut(id string) {
	over := time.Now().Add(-2 * time.Minute)
	s.set("holders."+id+".expireAt", over)
	s.set("expireAt", over)
}

func (s *fixture) set(path string, value any) {
	_, err := s.raw.UpdateByID(s.ctx, key, bson.D{{Key: "$set", Value: bson.D{{Key: path, Value: value}}}})
	s.ok(err)
}

// documents returns what is in the collection of the locks.
func (s *fixture) documents() (all []bson.D) {
	cursor, err := s.raw.Find(s.ctx, bson.D{})
	s.ok(err)
	s.ok(cursor.All(s.ctx, &all))
	return all
}
