package system

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// The advice about the pool: an application that keeps all of its connections busy loses its
// leases, unless they have connections of their own.
func TestAnExhaustedConnectionPoolLosesTheLease(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "capped", "atomic") // FerretDB's tailable cursors now and then leave its database locked
	coll := testserver.Collection(t, testserver.Client(t))
	busy := testserver.Client(t, func(o *options.ClientOptions) { o.SetMaxPoolSize(1) })
	in := func(c *mongo.Client) *mongo.Collection {
		return c.Database(coll.Database().Name()).Collection(coll.Name())
	}

	slow := testserver.Collection(t, busy)
	err := slow.Database().CreateCollection(t.Context(), slow.Name(), options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<16))
	require.NoError(t, err)
	_, err = slow.InsertOne(t.Context(), bson.D{})
	require.NoError(t, err)
	cursor, err := slow.Find(t.Context(), bson.D{}, options.Find().SetCursorType(options.TailableAwait).SetBatchSize(1).SetMaxAwaitTime(4*time.Second))
	require.NoError(t, err)
	cursor.TryNext(t.Context()) // the document that is there

	shared := tryAcquire(t, newClientOn(t, in(busy)), "shared", mongolock.TTL(min(pace.Of(1500*time.Millisecond), 3*time.Second)))
	own := tryAcquire(t, newClientOn(t, in(testserver.Client(t))), "own", mongolock.TTL(pace.Of(3*time.Second)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		cursor.TryNext(t.Context()) // the connection is busy while the server waits
	}()
	assert.ErrorIs(t, ended(t, shared, pace.Of(4*time.Second)), mongolock.ErrLost, "behind the application")
	<-done
	assert.NoError(t, own.Err(), "on a connection of its own")
	_ = cursor.Close(context.Background())
}

// The cursor on the wake-ups waits at the server for up to half a minute. In a pool of one
// connection it would keep the renewals out meanwhile.
func TestAWaiterDoesNotTakeTheOnlyConnectionOfItsPool(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "capped")
	var log logBuffer
	conn := f.connect(f.uri, func(o *options.ClientOptions) { o.SetMaxPoolSize(1) })
	ttl := pace.Of(3 * time.Second)
	c := f.clientOn(conn, mongolock.TTL(ttl), log.option())
	own, others := f.acquire(c, "own"), f.acquire(f.client(), "waited for")
	waiter := f.inBackground(f.ctx(), c, "waited for")
	f.waits(c, "waited for")
	time.Sleep(ttl * 4 / 3) // longer than the TTL of what is held
	f.mustHold(own)
	released := time.Now()
	f.release(others)
	got := f.granted(waiter)
	f.within(pollPause+slack, got.when.Sub(released), "from the release to the grant")
	f.release(got.lease)
	again := f.inBackground(f.ctx(), c, "own")
	f.waits(c, "own")
	f.release(own)
	f.release(f.granted(again).lease)
	assert.Equal(t, 1, log.count("maxPoolSize is 1"), "lines about it in %s", log.lines())
}
