package system

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testserver"
)

// The driver says that this is final, and so does the wait.
func TestAWaitEndsWhenItsMongoClientIsDisconnected(t *testing.T) {
	t.Parallel()
	uri, name := testserver.URI(t, "atomic"), "locks_"+rand.Text()[:8]
	mine, other := testserver.Connect(t, uri), testserver.Connect(t, uri)
	coll := other.Database("mongolock_disconnect").Collection(name)
	t.Cleanup(func() { _ = coll.Drop(context.Background()) })
	holder, err := mongolock.New(coll, mongolock.TTL(3*time.Second), mongolock.WithoutIndex())
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
	time.Sleep(2 * time.Second)
	require.NoError(t, mine.Disconnect(t.Context()))
	select {
	case err := <-waits:
		assert.ErrorIs(t, err, mongolock.ErrDisconnected)
		assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
	case <-time.After(30 * time.Second):
		assert.Fail(t, "it still waits")
		cancel()
		<-waits
	}
	require.NoError(t, lease.Release())
	require.NoError(t, holder.Close())
	_ = waiting.Close()
}
