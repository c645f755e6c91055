package doclock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/followtest"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// ready are the orders that the tests of waiting claims wait for.
var ready = bson.D{{Key: "state", Value: "ready"}}

// waiting has a claim wait in the background, and returns once it waits.
func waiting(ctx context.Context, t *testing.T, locks *Locks[order]) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		c, err := locks.Claim(ctx, ready, nil)
		if err == nil {
			err = c.Complete(context.WithoutCancel(ctx))
		}
		result <- err
	}()
	p, err := locks.pool(ctx, ready, nil, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		select {
		case p.waiters.looker <- struct{}{}:
			<-p.waiters.looker
			return false
		default:
			return true
		}
	}, pace.Of(5*time.Second), time.Millisecond, "the claim does not wait")
	return result
}

func TestAWaitingClaimRidesOutFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range lost {
		if name == "write concern error" {
			continue // not for reads
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := behindProxy(t, false, 10*time.Second)
			result := waiting(t.Context(), t, f.Locks)
			looks := f.proxy.On(faultproxy.Command("find").Next(3), fault())
			require.Eventually(t, func() bool { return looks.Hits() == 3 }, pace.Of(20*time.Second), 5*time.Millisecond)
			claim := f.proxy.On(claims.Nth(1), fault())
			put(t, f.direct(t), order{ID: "ready", State: "ready"})
			assert.NoError(t, <-result)
			oneHit(t, claim)
			assert.True(t, readLock(get(t, f.direct(t), "ready"), "lock").done)
		})
	}
}

func TestAClaimFailsAtItsFirstLookIfTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	f := behindProxy(t, false, 10*time.Second)
	f.proxy.On(faultproxy.Command("find"), faultproxy.DropCommand())
	_, err := f.Claim(t.Context(), ready, nil)
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrNoWork)
}

func TestAClaimThatGivesUpNamesTheLastFaultAndItsContext(t *testing.T) {
	t.Parallel()
	f := behindProxy(t, false, 10*time.Second)
	ctx, cancel := context.WithCancelCause(t.Context())
	result := waiting(ctx, t, f.Locks)
	looks := f.proxy.On(faultproxy.Command("find"), faultproxy.Fail(interrupted))
	// The first may be that of a look for what is foreign, and the third begins when the second has failed.
	require.Eventually(t, func() bool { return looks.Hits() >= 3 }, pace.Of(20*time.Second), 5*time.Millisecond)
	why := errors.New("the worker stops")
	cancel(why)
	err := <-result
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, err, why)
	assert.NotErrorIs(t, err, ErrNoWork)
	var fault mongo.CommandError
	require.ErrorAs(t, err, &fault)
	assert.EqualValues(t, interrupted, fault.Code)
}

func TestAClaimWhoseWaitEndsDoesNotReportThatThereIsNoWork(t *testing.T) {
	t.Parallel()
	locks := locksOn[order](t, collection(t))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := locks.Claim(ctx, ready, nil)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NotErrorIs(t, err, ErrNoWork)
	_, err = locks.TryClaim(t.Context(), ready, nil)
	assert.ErrorIs(t, err, ErrNoWork)
}

func TestAForeignFieldFailsNoWaitingClaim(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: "theirs"}, {Key: "state", Value: "ready"}, {Key: "lock", Value: "the application's"}})
	var log bytes.Buffer
	locks := locksOn[order](t, coll, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	for range 2 { // the second one looks no more, and says it all the same
		_, err := locks.TryClaim(t.Context(), ready, nil)
		assert.ErrorIs(t, err, ErrNoWork)
		assert.ErrorIs(t, err, mongolock.ErrForeign)
		assert.ErrorContains(t, err, `"theirs"`)
		assert.Equal(t, 1, strings.Count(log.String(), "passed over by every claim"), "the log, for a worker that never hears of its claims")
	}
	p, err := locks.pool(t.Context(), ready, nil, nil)
	require.NoError(t, err)
	result := waiting(t.Context(), t, locks)
	p.mu.Lock()
	p.lookedAt = time.Time{} // a look for foreign locks is due
	p.mu.Unlock()
	time.Sleep(300 * time.Millisecond) // real: longer than the look for foreign locks takes
	put(t, coll, order{ID: "o", State: "ready"})
	assert.NoError(t, <-result, "the waiting claim")

	ctx, cancel := context.WithTimeout(t.Context(), pace.Of(time.Second)) // enough for its look to be answered
	defer cancel()
	_, err = locks.Claim(ctx, ready, nil)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorIs(t, err, mongolock.ErrForeign, "what it passed over")
	assert.NotErrorIs(t, err, ErrNoWork)

	_, err = coll.DeleteOne(t.Context(), ID("theirs"))
	require.NoError(t, err)
	p.mu.Lock()
	p.lookedAt = time.Time{}
	p.mu.Unlock()
	_, err = locks.TryClaim(t.Context(), ready, nil)
	assert.NotErrorIs(t, err, mongolock.ErrForeign, "after it is gone")
}

// An idle queue beside many completed documents. The look for foreign locks takes about as
// long as a look for work; the control is the same look without the mark of completion.
func TestTheLookForForeignFieldsPassesOverCompletedDocuments(t *testing.T) {
	needs(t, "atomic")
	coll := collection(t)
	locks := locksOn[order](t, coll)
	require.NoError(t, locks.EnsureClaimIndex(t.Context(), ready, nil))
	for batch := range 20 {
		docs := make([]any, 1000)
		for i := range docs {
			docs[i] = bson.D{{Key: "_id", Value: fmt.Sprint(batch, "-", i)}, {Key: "state", Value: "ready"}, {Key: "lock", Value: bson.D{
				{Key: "doclock", Value: 1}, {Key: "expireAt", Value: bson.DateTime(0)}, {Key: "attempts", Value: 1}, {Key: "done", Value: true}}}}
		}
		put(t, coll, docs...)
	}
	filter, err := marshal(ready)
	require.NoError(t, err)
	took := func(filter any) time.Duration {
		best := time.Hour
		for range 5 {
			began := time.Now()
			err := coll.FindOne(t.Context(), filter, options.FindOne()).Err()
			best = min(best, time.Since(began))
			require.ErrorIs(t, err, mongo.ErrNoDocuments)
		}
		return best
	}
	passing := took(locks.store.foreignOf(filter, time.Now()))
	scanning := took(bson.D{{Key: "state", Value: "ready"}, {Key: "lock.doclock", Value: bson.D{{Key: "$ne", Value: 1}}}, {Key: "lock", Value: bson.D{{Key: "$exists", Value: true}}}})
	t.Logf("passing over 20,000 completed documents: %v; scanning them: %v", passing, scanning)
	assert.Less(t, passing, scanning/4)
}

func TestWaitingClaimsTryAFlappingFeedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &followtest.Flapping{}
		var s pools
		s.begin(&docStore{Feed: feed})
		defer s.close()
		p, err := s.pool(nil, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		p.waiters.enter()
		defer p.waiters.leave()
		for s.sleep(ctx, p) == nil { // and then it would look for work
		}
		opened, tooOften := feed.TriedTooOften(10 * time.Minute)
		assert.False(t, tooOften, "opened %d times in ten minutes", opened)
		assert.Greater(t, opened, int64(50), "opened again")
	})
}
