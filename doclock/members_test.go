package doclock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"github.com/mongolock/mongolock/internal/docdb"
	"github.com/mongolock/mongolock/internal/wire"
)

// A replicaSet is a replica set in memory whose primaries have clocks of their own, for tests in
// virtual time. Every write has a majority at once.
type replicaSet struct {
	mu     sync.Mutex // protects what follows
	db     *docdb.DB
	ahead  time.Duration // the primary's clock, before that of the bubble
	term   int           // elections so far
	sent   []docdb.Command
	before func(docdb.Command) // called before a command is run; may be nil

	breaks func(docdb.Command) bool // breaks the connection under the first command that it is true of; may be nil
	held   *docdb.Command           // that command, which is still on its way
}

func newReplicaSet(ahead time.Duration) *replicaSet {
	return &replicaSet{db: docdb.New(), ahead: ahead, term: 1}
}

// elect makes a member primary whose clock is that far ahead.
func (s *replicaSet) elect(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
	s.term++
}

// take returns the commands since the last take, without those of the wake-ups.
func (s *replicaSet) take() (names []string) {
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

// setEpoch is 2026 at the bubble's beginning in 2000: before 2020 tokens would be negative.
const setEpoch = 26 * 365 * 24 * time.Hour

func (s *replicaSet) run(c docdb.Command) bson.D {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, c)
	now := time.Now().Add(setEpoch + s.ahead)
	s.db.Hear(c.ClusterTime)
	var reply bson.D
	if c.Name == "hello" {
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
	} else {
		reply, _ = s.db.Do(c, now, false)
	}
	return append(reply, bson.E{Key: "operationTime", Value: s.db.Last()}, bson.E{Key: "$clusterTime", Value: bson.D{
		{Key: "clusterTime", Value: s.db.ClusterTime()},
		{Key: "signature", Value: bson.D{{Key: "hash", Value: bson.Binary{Data: make([]byte, 20)}}, {Key: "keyId", Value: int64(0)}}},
	}})
}

// collection is the collection that all tests on the set use, through a client of its own.
func (s *replicaSet) collection(t *testing.T) *mongo.Collection {
	return s.over(t, func() (time.Duration, bool) { return 0, true })
}

// over is collection through a network that holds up each command or its reply.
func (s *replicaSet) over(t *testing.T, trouble func() (late time.Duration, reply bool)) *mongo.Collection {
	opts := options.Client()
	require.NoError(t, xoptions.SetInternalClientOptions(opts, "deployment", inMemory{s, trouble}))
	client, err := mongo.Connect(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client.Database("d").Collection("orders")
}

// inMemory is the set as the driver sees it: its deployment and its server.
type inMemory struct {
	*replicaSet
	trouble func() (late time.Duration, reply bool)
}

func (m inMemory) SelectServer(context.Context, description.ServerSelector) (driver.Server, error) {
	return m, nil
}
func (inMemory) Kind() description.TopologyKind           { return description.TopologyKindReplicaSetWithPrimary }
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
	if c.breakOff(c.command) {
		return nil, errBroken
	}
	late, reply := c.trouble()
	out, back := time.Millisecond+late, time.Duration(0)
	switch {
	case c.command.Name == "getMore": // of the feed: nothing is new
		out = time.Second
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

var errBroken = errors.New("connection reset by peer")

func (s *replicaSet) breakOff(c docdb.Command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.breaks == nil || s.held != nil || !s.breaks(c) {
		return false
	}
	s.held = &c
	return true
}

func (*inMemoryConn) Close() error               { return nil }
func (*inMemoryConn) ID() string                 { return "in memory" }
func (*inMemoryConn) ServerConnectionID() *int64 { return nil }
func (*inMemoryConn) DriverConnectionID() int64  { return 1 }
func (*inMemoryConn) Address() address.Address   { return "in.memory:1" }
func (*inMemoryConn) Stale() bool                { return false }
func (*inMemoryConn) OIDCTokenGenID() uint64     { return 0 }
func (*inMemoryConn) SetOIDCTokenGenID(uint64)   {}
func (*inMemoryConn) Description() description.Server {
	minutes := int64(30)
	return description.Server{
		Addr: "in.memory:1", CanonicalAddr: "in.memory:1", Kind: description.ServerKindRSPrimary,
		MaxDocumentSize: 16 << 20, MaxMessageSize: 48_000_000, MaxBatchCount: 100_000,
		SessionTimeoutMinutes: &minutes, WireVersion: &description.VersionRange{Min: 0, Max: 21},
	}
}
