package server

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
	"github.com/mongolock/mongolock/store"
)

// overloaded is the code IngressRequestRateLimitExceeded.
const overloaded = 462

// A rig is a collection behind a proxy, and the same collection beside it.
type rig struct {
	*testing.T
	proxy  *faultproxy.Proxy
	client *mongo.Client
	coll   *mongo.Collection
	beside *mongo.Collection
}

func newRig(t *testing.T, opts ...func(*options.ClientOptions)) *rig {
	t.Helper()
	t.Parallel()
	uri := testserver.URI(t, "retryable")
	r := &rig{T: t, proxy: faultproxy.New(t, uri)}
	r.client = testserver.Connect(t, r.proxy.DirectURI(), opts...)
	name := "locks_" + rand.Text()[:8]
	r.coll = r.client.Database("mongolock_mongoerr").Collection(name)
	r.beside = testserver.Connect(t, uri).Database("mongolock_mongoerr").Collection(name)
	t.Cleanup(func() { _ = r.beside.Drop(context.Background()) })
	require.NoError(t, r.client.Ping(t.Context(), nil)) // it has a connection
	return r
}

// write sends what a claim sends.
func (r *rig) write(bound time.Duration) error {
	ctx, cancel := context.WithTimeout(r.Context(), bound)
	defer cancel()
	return r.coll.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: "k"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "held", Value: true}}}},
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Err()
}

func (r *rig) applied() bool {
	r.Helper()
	n, err := r.beside.CountDocuments(r.Context(), bson.D{{Key: "_id", Value: "k"}})
	require.NoError(r, err)
	return n > 0
}

// The pool has one connection, and the application uses it.
func TestAWriteThatFindsNoConnectionWasNotSent(t *testing.T) {
	r := newRig(t, func(o *options.ClientOptions) { o.SetMaxPoolSize(1) })
	busy := r.proxy.On(faultproxy.Command("count", "aggregate").Next(1), faultproxy.Hold())
	over := make(chan error)
	go func() {
		_, err := r.coll.CountDocuments(context.Background(), bson.D{})
		over <- err
	}()
	<-busy.Fired()
	err := r.write(200 * time.Millisecond)
	busy.Release()
	require.NoError(t, <-over)
	full := errors.As(err, new(topology.WaitQueueTimeoutError))
	require.True(t, full, "this test wants a full pool: %v", err)
	assert.Equal(t, NotSent, ClassOf(err), "%v", err)
	assert.ErrorIs(t, Classified(err), store.ErrNotApplied)
	assert.Zero(t, r.proxy.Count("findAndModify"))
	assert.False(t, r.applied())
	require.NoError(t, r.write(10*time.Second), "with a connection")
}

// A retry that finds no server, or no connection, says nothing of the first attempt.
func TestAWriteWhoseRetryFindsNoServerIsUnknown(t *testing.T) {
	r := newRig(t)
	first := r.proxy.On(faultproxy.Command("findAndModify"), faultproxy.HoldReply())
	over := make(chan error)
	go func() { over <- r.write(2 * time.Second) }()
	<-first.Fired()
	r.proxy.Cut()
	err := <-over
	r.proxy.Restore()
	require.Error(t, err)
	assert.Equal(t, Unknown, ClassOf(err), "%v", err)
	assert.True(t, r.applied())
}

func TestAWriteWhoseRetryFindsNoConnectionIsUnknown(t *testing.T) {
	var timeouts atomic.Int32
	r := newRig(t, func(o *options.ClientOptions) {
		o.SetMaxPoolSize(1).SetPoolMonitor(&event.PoolMonitor{Event: func(e *event.PoolEvent) {
			if e.Type == event.ConnectionCheckOutFailed && e.Reason == event.ReasonTimedOut {
				timeouts.Add(1)
			}
		}})
	})
	opening := func(cmd bson.Raw) bool { return !cmd.Lookup("client").IsZero() }
	r.proxy.On(faultproxy.Command("hello", "isMaster").Where(opening), faultproxy.HalfOpen())
	r.proxy.On(faultproxy.Command("findAndModify"), faultproxy.DropReply())
	err := r.write(2 * time.Second)
	require.Error(t, err)
	require.Positive(t, timeouts.Load(), "this test wants a retry that waits for a connection: %v", err)
	assert.Equal(t, Unknown, ClassOf(err), "%v", err)
	assert.True(t, r.applied())
}

// An overloaded server drops connections, and refuses what comes on new ones. The
// driver returns the refusal alone: if it were taken for "not applied", a claim would be
// left behind.
func TestAnOverloadsRefusalMayHideAFirstAttemptThatWasApplied(t *testing.T) {
	r := newRig(t)
	r.proxy.On(faultproxy.Command("findAndModify").Next(1), faultproxy.DropReply())
	r.proxy.On(faultproxy.Command("findAndModify").After(1), faultproxy.Fail(overloaded))
	err := r.write(30 * time.Second)
	var refusal mongo.ServerError
	require.True(t, errors.As(err, &refusal) && refusal.HasErrorCode(overloaded), "this test wants the refusal: %v", err)
	assert.True(t, r.applied())
	assert.Equal(t, Unknown, ClassOf(err), "%v", err)
}

func TestADisconnectedClientSendsNothingEverAgain(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.write(10*time.Second))
	sent := r.proxy.Count("findAndModify")
	require.NoError(t, r.client.Disconnect(t.Context()))
	for range 2 {
		err := r.write(10 * time.Second)
		assert.Equal(t, Disconnected, ClassOf(err), "%v", err)
		assert.ErrorIs(t, Classified(err), store.ErrDisconnected)
		assert.ErrorIs(t, Classified(err), store.ErrNotApplied)
	}
	assert.Equal(t, sent, r.proxy.Count("findAndModify"))
}

// Disconnect does not wait for a write for longer than it is told to.
func TestAWriteUnderWayWhenTheClientIsDisconnectedIsUnknown(t *testing.T) {
	r := newRig(t)
	held := r.proxy.On(faultproxy.Command("findAndModify"), faultproxy.HoldReply())
	over := make(chan error)
	go func() { over <- r.write(10 * time.Second) }()
	<-held.Fired()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = r.client.Disconnect(ctx)
	err := <-over
	require.Error(t, err)
	assert.Equal(t, Unknown, ClassOf(err), "%v", err)
	assert.True(t, r.applied())
}
