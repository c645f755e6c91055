package system

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
	"github.com/mongolock/mongolock/store"
)

// The driver's error is final, and so is the wait's.
func TestAWaitEndsWhenItsMongoClientIsDisconnected(t *testing.T) {
	t.Parallel()
	uri, name := testserver.URI(t, "atomic"), "locks_"+rand.Text()[:8]
	mine, other := testserver.Connect(t, uri), testserver.Connect(t, uri)
	coll := other.Database("mongolock_disconnect").Collection(name)
	t.Cleanup(func() { _ = coll.Drop(context.Background()) })
	holder, err := mongolock.New(coll, mongolock.TTL(time.Minute), mongolock.WithoutIndex()) // nothing else ends the wait
	require.NoError(t, err)
	lease, err := holder.Acquire(t.Context(), "k")
	require.NoError(t, err)
	waiting, err := mongolock.New(mine.Database(coll.Database().Name()).Collection(name), mongolock.WithoutIndex())
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waits := make(chan error)
	go func() {
		_, err := waiting.Acquire(ctx, "k")
		waits <- err
	}()
	time.Sleep(2 * time.Second) // real: it waits, and has gone through some looks
	require.NoError(t, mine.Disconnect(t.Context()))
	select {
	case err := <-waits:
		assert.ErrorIs(t, err, mongolock.ErrDisconnected)
		assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
	case <-time.After(min(pace.Of(5*time.Second), 30*time.Second)):
		assert.Fail(t, "it still waits")
		cancel()
		<-waits
	}
	require.NoError(t, lease.Release())
	require.NoError(t, holder.Close())
	_ = waiting.Close()
}

// The application uses the pool's only connection. A claim that finds no connection was never
// sent: nothing is cleaned up, and no claim waits for what it might have left.
func TestAClaimThatFindsNoFreeConnectionLeavesNothing(t *testing.T) {
	t.Parallel()
	uri, name := testserver.URI(t, "atomic"), "locks_"+rand.Text()[:8]
	proxy := faultproxy.New(t, uri)
	mine := testserver.Connect(t, proxy.DirectURI(), func(o *options.ClientOptions) { o.SetMaxPoolSize(1) })
	coll := mine.Database("mongolock_notsent").Collection(name)
	t.Cleanup(func() { _ = coll.Drop(context.Background()) })
	locks, err := mongolock.New(coll, mongolock.TTL(time.Second), mongolock.WithoutIndex())
	require.NoError(t, err)
	_, err = locks.Inspect(t.Context(), "k") // it knows the server's clock
	require.NoError(t, err)

	busy := proxy.On(faultproxy.Command("aggregate", "count").Next(1), faultproxy.Hold())
	over := make(chan error)
	go func() {
		_, err := coll.CountDocuments(context.Background(), bson.D{})
		over <- err
	}()
	<-busy.Fired()
	_, err = locks.TryAcquire(t.Context(), "k")
	assert.ErrorIs(t, err, store.ErrNotApplied)
	assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
	busy.Release()
	require.NoError(t, <-over)
	require.NoError(t, locks.Close(), "nothing is left to clean up")
	assert.Zero(t, proxy.Count("findAndModify"))
}
