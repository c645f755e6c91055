package doclock

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// deadOf are the documents that were set aside.
func deadOf[T any](t *testing.T, locks *Locks[T], filter any) (all []Dead[T]) {
	t.Helper()
	for d, err := range locks.Dead(t.Context(), filter) {
		require.NoError(t, err)
		all = append(all, d)
	}
	return all
}

func TestADocumentThatWasClaimedTooOftenIsSetAsideAndComesBack(t *testing.T) {
	coll := collection(t)
	messages(t, coll, 2)
	var log bytes.Buffer
	locks := locksOn[message](t, coll, MaxAttempts(2), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	var got []int
	for range 4 { // the second time each of them is put back in another way
		c := must(locks.TryClaim(t.Context(), pending, oldest))(t)
		got = append(got, c.Value.ID)
		assert.LessOrEqual(t, c.Attempts(), 2)
		if c.Attempts() == 1 {
			require.NoError(t, c.Requeue(t.Context(), 0))
		} else {
			c.Value.By = "unsaved"
			require.NoError(t, c.Release())
		}
	}
	slices.Sort(got)
	assert.Equal(t, []int{0, 0, 1, 1}, got)
	assert.Empty(t, deadOf(t, locks, bson.D{}), "the attempts are over, but nobody has asked again")
	_, err := locks.TryClaim(t.Context(), pending, oldest)
	require.ErrorIs(t, err, ErrNoWork)
	assert.Equal(t, 2, bytes.Count(log.Bytes(), []byte("set aside")), "%s", &log)

	dead := deadOf(t, locks, pending)
	require.Len(t, dead, 2)
	assert.Equal(t, message{0, "pending", ""}, dead[0].Value)
	assert.Equal(t, 2, dead[0].Attempts)
	assert.EqualValues(t, 0, dead[0].ID.Int32())
	assert.WithinDuration(t, time.Now(), dead[0].At, time.Minute)
	assert.Empty(t, deadOf(t, locks, bson.M{"state": "sent"}))
	_, err = locksOn[message](t, coll).TryClaim(t.Context(), pending, oldest)
	require.ErrorIs(t, err, ErrNoWork, "without MaxAttempts, too")

	n, err := locks.Reopen(t.Context(), ID(1))
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Len(t, deadOf(t, locks, bson.D{}), 1)
	time.Sleep(windowAge) // so that the look ahead is old, and made again
	c := must(locks.TryClaim(t.Context(), pending, oldest))(t)
	assert.Equal(t, 1, c.Value.ID)
	assert.Equal(t, 1, c.Attempts())
	require.NoError(t, c.Complete(t.Context()))
}

func TestADocumentWhoseWorkersDieIsSetAside(t *testing.T) {
	coll := collection(t)
	messages(t, coll, 1)
	ttl := pace.Of(500 * time.Millisecond)
	for range 3 {
		dying := locksOn[message](t, coll, With(mongolock.TTL(ttl)))
		must(dying.Claim(t.Context(), pending, oldest, mongolock.NoRenewal()))(t)
		time.Sleep(ttl * 3 / 2) // real: until the one that died is over
	}
	locks := locksOn[message](t, coll, MaxAttempts(3))
	assert.Eventually(t, func() bool {
		_, err := locks.TryClaim(t.Context(), pending, oldest)
		require.ErrorIs(t, err, ErrNoWork)
		return len(deadOf(t, locks, bson.D{})) == 1
	}, pace.Of(10*time.Second), 50*time.Millisecond)
}

func TestADocumentThatDoesNotDecodeIsSetAside(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.M{"_id": 7, "state": "pending", "by": bson.M{"no": "text"}})
	for range 2 {
		_, err := locksOn[message](t, coll).TryClaim(t.Context(), pending, oldest)
		require.ErrorIs(t, err, ErrDecode)
	}
	locks := locksOn[message](t, coll, MaxAttempts(2))
	_, err := locks.TryClaim(t.Context(), pending, oldest)
	require.ErrorIs(t, err, ErrNoWork)
	seen := 0
	for d, err := range locks.Dead(t.Context(), bson.D{}) {
		require.ErrorIs(t, err, ErrDecode)
		assert.EqualValues(t, 7, d.ID.Int32())
		seen++
	}
	assert.Equal(t, 1, seen)
}

func TestReopenUndoesACompletionAndWakesWaitingClaims(t *testing.T) {
	coll := collection(t)
	messages(t, coll, 3)
	locks := locksOn[message](t, coll)
	for range 3 {
		require.NoError(t, must(locks.TryClaim(t.Context(), pending, oldest))(t).Complete(t.Context()))
	}
	held := must(locks.Acquire(t.Context(), ID(2)))(t) // by its name: it is completed all the same
	got := make(chan int)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		c, err := locks.Claim(ctx, pending, oldest)
		assert.NoError(t, err)
		got <- c.Value.ID
	}()
	n, err := locks.Reopen(t.Context(), bson.M{"_id": bson.M{"$gte": 1}})
	require.NoError(t, err)
	assert.Equal(t, 1, n, "what is locked stays as it is")
	assert.Equal(t, 1, <-got)
	require.NoError(t, held.Lease().Err())
	require.NoError(t, held.Release())
	assert.True(t, readLock(get(t, coll, 2), "lock").done)
}

func TestSettingADocumentAsideTakesTwoCommands(t *testing.T) {
	needs(t, "atomic") // elsewhere a claim takes one more
	var tap testserver.Tap
	coll := collection(t, tap.On)
	messages(t, coll, 1)
	first := locksOn[message](t, coll)
	require.NoError(t, must(first.TryClaim(t.Context(), pending, oldest))(t).Release())
	locks := locksOn[message](t, coll, MaxAttempts(1))
	must(locks.TryAcquire(t.Context(), ID(0)))(t).Release() // the first one also sends a hello
	tap.TakeNames()
	_, err := locks.TryClaim(t.Context(), pending, oldest)
	require.ErrorIs(t, err, ErrNoWork)
	assert.Equal(t, []string{"find", "findAndModify", "findAndModify", "find", "find"}, tap.TakeNames(),
		"a look, the claim, the mark; a look that finds nothing, and one for what is foreign")
}

func TestReopenAndDeadRefuseABadFilter(t *testing.T) {
	coll := collection(t)
	locks := locksOn[message](t, coll)
	_, err := locks.Reopen(t.Context(), nil)
	require.ErrorContains(t, err, "reopen: the filter: is nil")
	for _, err := range locks.Dead(t.Context(), 7) {
		assert.ErrorContains(t, err, "dead: the filter: is a int")
	}
	_, err = New[message](coll, MaxAttempts(0))
	assert.ErrorContains(t, err, "MaxAttempts(0): must be positive")
}
