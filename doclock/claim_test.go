package doclock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
)

type message struct {
	ID    int    `bson:"_id"`
	State string `bson:"state"`
	By    string `bson:"by,omitempty"`
}

var (
	pending = bson.D{{Key: "state", Value: "pending"}}
	oldest  = bson.D{{Key: "_id", Value: 1}}
)

// messages inserts n pending messages.
func messages(t testing.TB, coll *mongo.Collection, n int) {
	t.Helper()
	for from := 0; from < n; from += 10_000 {
		var docs []any
		for i := from; i < min(n, from+10_000); i++ {
			docs = append(docs, message{ID: i, State: "pending"})
		}
		put(t, coll, docs...)
	}
}

func TestClaimsComeInOrderAndCountTheirAttempts(t *testing.T) {
	coll := collection(t)
	messages(t, coll, 3)
	locks := locksOn[message](t, coll)
	require.NoError(t, locks.EnsureClaimIndex(t.Context(), pending, oldest))
	for want := range 3 {
		c := must(locks.TryClaim(t.Context(), pending, oldest))(t)
		assert.Equal(t, want, c.Value.ID)
		assert.Equal(t, 1, c.Attempts())
		defer c.Release()
	}
	_, err := locks.TryClaim(t.Context(), pending, oldest)
	assert.ErrorIs(t, err, ErrNoWork, "the fourth")
}

func TestACompletedDocumentIsNeverClaimedAgain(t *testing.T) {
	coll := collection(t)
	messages(t, coll, 2)
	locks := locksOn[message](t, coll)
	c := must(locks.TryClaim(t.Context(), pending, oldest))(t)
	c.Value.By = "me"
	require.NoError(t, c.Complete(t.Context())) // though its state is still pending
	raw := get(t, coll, 0)
	assert.Equal(t, "me", raw.Lookup("by").StringValue())
	assert.Empty(t, readLock(raw, "lock").holder().ID)
	assert.True(t, readLock(raw, "lock").done)

	removed := must(locks.TryClaim(t.Context(), pending, oldest))(t)
	require.NoError(t, removed.Remove(t.Context()))
	assert.ErrorIs(t, coll.FindOne(t.Context(), ID(1)).Err(), mongo.ErrNoDocuments)
	_, err := locksOn[message](t, coll).TryClaim(t.Context(), pending, oldest)
	assert.ErrorIs(t, err, ErrNoWork)

	// By its _id it can still be locked, and stays completed.
	must(locks.TryAcquire(t.Context(), ID(0)))(t).Release()
	assert.True(t, readLock(get(t, coll, 0), "lock").done)
	assert.ErrorIs(t, c.Complete(t.Context()), mongolock.ErrReleased, "completed twice")
}

func TestARequeuedDocumentIsNotClaimedBeforeItsTime(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	messages(t, coll, 1)
	locks := locksOn[message](t, coll)
	c := must(locks.TryClaim(t.Context(), pending, oldest))(t)
	c.Value.By = "me"
	const after = 700 * time.Millisecond
	sent := time.Now()
	require.NoError(t, c.Requeue(t.Context(), after))
	_, err := locks.TryClaim(t.Context(), pending, oldest)
	assert.ErrorIs(t, err, ErrNoWork, "at once")
	must(locks.TryAcquire(t.Context(), ID(0)))(t).Release() // by its _id it is free
	c = must(locks.Claim(t.Context(), pending, oldest))(t)
	assert.GreaterOrEqual(t, time.Since(sent), after)
	assert.LessOrEqual(t, time.Since(sent), after+pace.Of(2500*time.Millisecond))
	assert.Equal(t, 2, c.Attempts())
	assert.Equal(t, "me", c.Value.By)
	require.NoError(t, c.Requeue(t.Context(), 0))
	c = must(locks.TryClaim(t.Context(), pending, oldest))(t)
	assert.Equal(t, 3, c.Attempts())
}

func TestADeadWorkersDocumentComesBackAfterItsLease(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	messages(t, coll, 1)
	const ttl = 500 * time.Millisecond
	asked := time.Now() // the lease counts from here, however late the reply is
	dead := must(locksOn[message](t, coll).TryClaim(t.Context(), pending, oldest, mongolock.TTL(ttl), mongolock.NoRenewal()))(t)
	c := must(locksOn[message](t, coll).Claim(t.Context(), pending, oldest))(t)
	assert.GreaterOrEqual(t, time.Since(asked), ttl)
	assert.LessOrEqual(t, time.Since(asked), pace.Of(3*time.Second))
	assert.Equal(t, 2, c.Attempts())
	assert.Greater(t, c.Lease().Token(), dead.Lease().Token())
	assert.ErrorIs(t, dead.Complete(t.Context()), mongolock.ErrLost, "the dead worker completes it")
}

func TestAWaiterIsWokenByAnAnnouncement(t *testing.T) {
	t.Parallel()
	needs(t, "capped", "atomic")
	coll := collection(t)
	locks := locksOn[message](t, coll)
	claimed := make(chan error)
	wait := func() {
		_, err := locks.Claim(t.Context(), pending, oldest)
		claimed <- err
	}
	go wait()
	time.Sleep(3 * time.Second) // it looks about once a second by now, and its feed is open
	var woken []time.Duration
	for i := range 3 {
		put(t, coll, message{ID: i, State: "pending"})
		announced := time.Now()
		require.NoError(t, Announce(t.Context(), coll))
		require.NoError(t, <-claimed)
		woken = append(woken, time.Since(announced))
		go wait()
		time.Sleep(2 * time.Second) // real: it looks about once a second again, and its feed is open
	}
	go func() { <-claimed }()
	slices.Sort(woken)
	assert.LessOrEqual(t, woken[1], pace.Of(250*time.Millisecond), "the median of %v", woken)
}

func TestAWaiterFindsWorkWithoutAnAnnouncement(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	locks := locksOn[message](t, coll)
	claimed := make(chan time.Time, 2)
	for range 2 {
		go func() {
			_, err := locks.Claim(t.Context(), pending, oldest)
			assert.NoError(t, err)
			claimed <- time.Now()
		}()
	}
	time.Sleep(time.Second) // real: until all wait
	inserted := time.Now()
	messages(t, coll, 2)
	for range 2 {
		assert.LessOrEqual(t, (<-claimed).Sub(inserted), pace.Of(2500*time.Millisecond))
	}
}

func TestAWaitingClaimEndsWithItsContextAndOnClose(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	locks := locksOn[message](t, coll)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := locks.Claim(ctx, pending, oldest)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	failed := make(chan error)
	go func() {
		_, err := locks.Claim(t.Context(), pending, oldest)
		failed <- err
	}()
	time.Sleep(200 * time.Millisecond) // real: until it waits
	assert.NoError(t, locks.Close())
	assert.ErrorIs(t, <-failed, mongolock.ErrClosed)
	_, err = locks.TryClaim(t.Context(), pending, oldest)
	assert.ErrorIs(t, err, mongolock.ErrClosed, "after Close")
}

func TestADocumentThatDoesNotDecodeDoesNotBlockOtherClaims(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: 0}, {Key: "state", Value: "pending"}, {Key: "by", Value: bson.A{}}}, message{ID: 1, State: "pending"})
	locks := locksOn[message](t, coll)
	_, err := locks.TryClaim(t.Context(), pending, oldest)
	require.ErrorIs(t, err, ErrDecode)
	lock := readLock(get(t, coll, 0), "lock")
	assert.Empty(t, lock.holder().ID, "the holder")
	assert.False(t, lock.done)
	c := must(locks.TryClaim(t.Context(), pending, oldest))(t)
	assert.Equal(t, 1, c.Value.ID)
	_, err = locks.TryClaim(t.Context(), pending, oldest)
	assert.ErrorIs(t, err, ErrNoWork)
}

func TestACodeIsFoundInAnyServerError(t *testing.T) {
	assert.True(t, hasCode(fmt.Errorf("x: %w", mongo.CommandError{Code: 225}), 2, 225))
	assert.False(t, hasCode(errors.New("225"), 225))
}
