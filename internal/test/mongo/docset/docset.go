// Package docset is a replica set in memory for tests in virtual time: the real driver of
// MongoDB sends its commands to it within a bubble of testing/synctest. Every write has a
// majority at once. The test decides which faults occur. (Package simulation has servers that
// fail by themselves.)
package docset

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"github.com/mongolock/mongolock/internal/test/kit/onecore"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// A Set is a replica set whose primaries have clocks of their own.
type Set struct {
	mu     sync.Mutex // protects what follows
	db     *docdb.DB
	ahead  time.Duration // the primary's clock, before that of the bubble
	term   int           // elections so far
	old    *docdb.DB     // of a deposed primary that still answers; nil: there is none
	sent   []docdb.Command
	before func(docdb.Command) // called before a command is run; may be nil
	breaks func(docdb.Command) bool
	cut    *docdb.Command // the command under which the connection broke

	place  func(id string) int // on which shard a document is; nil: there are none
	shards []*shard
	told   bson.Timestamp // the operationTime of the last of their replies
}

// New makes a set whose primary's clock is that far before the bubble's.
func New(ahead time.Duration) *Set {
	onecore.Begin() // until the process ends: a set is never closed
	return &Set{db: docdb.New(), ahead: ahead, term: 1}
}

// Elect makes a member primary whose clock is that far ahead.
func (s *Set) Elect(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
	s.term++
}

// Step sets the primary's clock forward.
func (s *Set) Step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

// Before has f called before each command is run; nil: nothing.
func (s *Set) Before(f func(docdb.Command)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// RollBack elects a member that has only the first n writes.
func (s *Set) RollBack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db = s.db.Fork(n)
	s.term++
}

// Depose elects another primary, of that shard if there are some. The old one does not know, and gets
// all reads but linearizable ones.
func (s *Set) Depose(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	db, old := s.db, &s.old
	if len(s.shards) > 0 {
		db, old = s.shards[shard].db, &s.shards[shard].old
	}
	*old = db.Fork(db.Len())
}

// asked is which primary's data a command meets.
func asked(c docdb.Command, db, old *docdb.DB) *docdb.DB {
	if old != nil && c.Name == "find" && !c.Reads("linearizable") {
		return old
	}
	return db
}

// Len is how many writes there were.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.Len()
}

// CutOff breaks the connection under the first command of which cut is true. The command is on
// its way until arrive is called.
func (s *Set) CutOff(cut func(docdb.Command) bool) (arrive func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaks, s.cut = cut, nil
	return func() { s.run(*s.cut) }
}

var errBroken = errors.New("connection reset by peer")

func (s *Set) broken(c docdb.Command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.breaks == nil || s.cut != nil || !s.breaks(c) {
		return false
	}
	s.cut = &c
	return true
}

// Take returns the commands since the last Take, without those of the wake-ups.
func (s *Set) Take() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.sent {
		if c.Name != "endSessions" && c.Name != "listCollections" && !strings.HasSuffix(c.Coll(), ".wake") {
			names = append(names, c.Name)
		}
	}
	s.sent = nil
	return names
}

// Epoch is 2026 at the bubble's beginning in 2000: before 2020 tokens would be negative.
const Epoch = 26 * 365 * 24 * time.Hour

func (s *Set) run(c docdb.Command) bson.D {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, c)
	now := time.Now().Add(Epoch + s.ahead)
	s.db.Hear(c.ClusterTime)
	var reply bson.D
	last := s.db.Last
	switch {
	case s.place != nil:
		reply = s.route(c)
		last = func() bson.Timestamp { return s.told }
	case c.Name == "hello":
		reply = bson.D{
			{Key: "isWritablePrimary", Value: true},
			{Key: "localTime", Value: bson.DateTime(now.UnixMilli())},
			{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
			{Key: "maxWireVersion", Value: int32(21)},
			{Key: "setName", Value: "rs"},
			{Key: "setVersion", Value: int32(1)},
			{Key: "electionId", Value: bson.ObjectID{0: 0x7f, 1: 0xff, 2: 0xff, 3: 0xff, 11: byte(s.term)}},
			{Key: "ok", Value: 1.0},
		}
	default:
		reply, _ = asked(c, s.db, s.old).Do(c, now, false)
	}
	return docdb.Stamped(reply, last(), s.db.ClusterTime())
}

// A Trouble holds up a command on its way, or its reply, for as long as it says.
type Trouble func(c docdb.Command) (late time.Duration, reply bool)

// None troubles nothing.
func None(docdb.Command) (time.Duration, bool) { return 0, true }

// Client connects to the set until the test ends, with what goes wrong on its way.
func (s *Set) Client(t testing.TB, trouble Trouble) *mongo.Client {
	t.Helper()
	opts := options.Client()
	if err := xoptions.SetInternalClientOptions(opts, "deployment", inMemory{s, trouble}); err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

// inMemory is the set as the driver sees it: its deployment and its server.
type inMemory struct {
	*Set
	trouble Trouble
}

func (m inMemory) SelectServer(context.Context, description.ServerSelector) (driver.Server, error) {
	return m, nil
}

// Kind is what the servers are together.
func (m inMemory) Kind() description.TopologyKind {
	if m.place != nil {
		return description.TopologyKindSharded
	}
	return description.TopologyKindReplicaSetWithPrimary
}
func (inMemory) GetServerSelectionTimeout() time.Duration { return time.Second }
func (inMemory) RTTMonitor() driver.RTTMonitor            { return noRTT{} }
func (m inMemory) Connection(context.Context) (*mnet.Connection, error) {
	return mnet.NewConnection(&inMemoryConn{inMemory: m}), nil
}

type noRTT struct{}

func (noRTT) EWMA() time.Duration { return 0 }
func (noRTT) Min() time.Duration  { return 0 }
func (noRTT) P90() time.Duration  { return 0 }
func (noRTT) Stats() string       { return "" }

// An inMemoryConn answers one command after the other.
type inMemoryConn struct {
	inMemory
	message *wire.Message
	command docdb.Command
}

func (c *inMemoryConn) Write(_ context.Context, raw []byte) error {
	message, err := wire.Parse(raw)
	if err != nil {
		return err
	}
	body, err := message.Document()
	if err != nil {
		return err
	}
	c.message = message
	c.command, err = docdb.Parse(body)
	return err
}

// Read answers the command, unless ctx ends first. A command that is held up is run all the
// same, when its reply is no longer waited for.
func (c *inMemoryConn) Read(ctx context.Context) ([]byte, error) {
	if c.broken(c.command) {
		return nil, errBroken
	}
	late, reply := c.trouble(c.command)
	out, back := time.Millisecond+late, time.Duration(0)
	switch {
	case c.command.Name == "getMore": // of the feed: nothing is new
		out, c.command.Wait = time.Second, docdb.Over
	case reply:
		out, back = time.Millisecond, late
	}
	answer := make(chan bson.D, 1)
	time.AfterFunc(out, func() {
		body := c.run(c.command)
		time.AfterFunc(back, func() { answer <- body })
	})
	select {
	case body := <-answer:
		raw, err := bson.Marshal(body)
		return c.message.Answer(1, raw).Raw, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (*inMemoryConn) Close() error               { return nil }
func (*inMemoryConn) ID() string                 { return "in memory" }
func (*inMemoryConn) ServerConnectionID() *int64 { return nil }
func (*inMemoryConn) DriverConnectionID() int64  { return 1 }
func (*inMemoryConn) Address() address.Address   { return "in.memory:1" }
func (*inMemoryConn) Stale() bool                { return false }
func (*inMemoryConn) OIDCTokenGenID() uint64     { return 0 }
func (*inMemoryConn) SetOIDCTokenGenID(uint64)   {}
func (c *inMemoryConn) Description() description.Server {
	minutes := int64(30)
	kind := description.ServerKindRSPrimary
	if c.place != nil {
		kind = description.ServerKindMongos
	}
	return description.Server{
		Addr: "in.memory:1", CanonicalAddr: "in.memory:1", Kind: kind,
		MaxDocumentSize: 16 << 20, MaxMessageSize: 48_000_000, MaxBatchCount: 100_000,
		SessionTimeoutMinutes: &minutes, WireVersion: &description.VersionRange{Min: 0, Max: 21},
	}
}
