package doclock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
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

// lockedBy is a document whose lock an operator has written by hand.
func lockedBy(id string, lock ...bson.E) bson.D {
	lock = append(bson.D{{Key: "doclock", Value: 1}, {Key: "expireAt", Value: bson.DateTime(0)}}, lock...)
	return bson.D{{Key: "_id", Value: id}, {Key: "state", Value: "ready"}, {Key: "lock", Value: bson.D(lock)}}
}

// claimsSent is how many claims were sent since the last call.
func (s *replicaSet) claimsSent() int {
	return len(slices.DeleteFunc(s.Take(), func(name string) bool { return name != "findAndModify" }))
}

func TestAClaimPassesOverALockThatSomebodyHasSpoiled(t *testing.T) {
	for _, spoiled := range []bson.D{
		{{Key: "id", Value: nil}}, {{Key: "id", Value: 5}}, {{Key: "id", Value: ""}}, {{Key: "id", Value: bson.D{}}}, {{Key: "id", Value: bson.A{}}}, {{Key: "id", Value: bson.A{"x"}}},
		{{Key: "line", Value: "x"}}, {{Key: "line", Value: nil}}, {{Key: "line", Value: bson.A{5}}}, {{Key: "line", Value: bson.D{{Key: "0", Value: "x"}}}},
		{{Key: "waits", Value: 5}}, {{Key: "waits", Value: bson.A{}}}, {{Key: "id", Value: "x"}, {Key: "ttl", Value: "x"}},
		{{Key: "line", Value: bson.A{"x::1"}}, {Key: "waits", Value: bson.D{{Key: "x::1", Value: bson.D{{Key: "seen", Value: "x"}}}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			set := newReplicaSet(0)
			coll := set.collection(t)
			put(t, coll, lockedBy("by hand", spoiled...))
			locks := locksOn[order](t, coll)
			_, err := locks.TryClaim(t.Context(), ready, nil)
			assert.ErrorIs(t, err, ErrNoWork, "%v", spoiled)
			assert.ErrorIs(t, err, mongolock.ErrForeign, "%v", spoiled)
			assert.Zero(t, set.claimsSent(), "%v", spoiled)
			_, err = locks.TryAcquire(t.Context(), ID("by hand"))
			assert.ErrorIs(t, err, mongolock.ErrForeign, "%v", spoiled)
			require.NoError(t, locks.Close())
		})
	}
}

// disagreeing has the looks of stores show documents that their claims never get.
func disagreeing(s *replicaSet) {
	s.Before(func(c docdb.Command) {
		for _, e := range c.Body {
			filter, _ := e.Value.(bson.D)
			for i, f := range filter {
				if c.Name == "findAndModify" && e.Key == "query" && f.Key == "_id" && f.Value != "good" {
					filter[i].Value = "nowhere"
				}
			}
		}
	})
}

func TestAClaimEndsAlthoughEveryLookShowsADocumentThatNoClaimGets(t *testing.T) {
	for _, n := range []int{1, 500} {
		synctest.Test(t, func(t *testing.T) {
			set := newReplicaSet(0)
			coll := set.collection(t)
			for range n {
				put(t, coll, bson.D{{Key: "state", Value: "ready"}})
			}
			locks := locksOn[order](t, coll)
			disagreeing(set)
			_, err := locks.TryClaim(t.Context(), ready, nil)
			assert.ErrorIs(t, err, ErrNoWork)
			assert.LessOrEqual(t, set.claimsSent(), maxMiss, "of %d documents", n)
			require.NoError(t, locks.Close())
		})
	}
}

// It costs a few commands a minute, and keeps no worker from the documents behind it.
func TestADocumentThatNoClaimGetsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newReplicaSet(0)
		coll := set.collection(t)
		put(t, coll, order{ID: "a bad one", State: "ready"})
		locks := locksOn[order](t, coll)
		disagreeing(set)
		for range 20 {
			_, err := locks.TryClaim(t.Context(), ready, bson.D{{Key: "_id", Value: 1}})
			assert.ErrorIs(t, err, ErrNoWork)
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, set.claimsSent(), badAfter)
		put(t, coll, order{ID: "good", State: "ready"})
		claimed, err := locks.Claim(t.Context(), ready, bson.D{{Key: "_id", Value: 1}})
		require.NoError(t, err)
		assert.Equal(t, "good", claimed.Value.ID)
		require.NoError(t, locks.Close())
	})
}

func TestADocumentThatIsMarkedAsNotDoneIsClaimed(t *testing.T) {
	for _, mark := range []any{false, nil} {
		synctest.Test(t, func(t *testing.T) {
			set := newReplicaSet(0)
			coll := set.collection(t)
			put(t, coll, lockedBy("not done", bson.E{Key: "done", Value: mark}), lockedBy("done", bson.E{Key: "done", Value: true}))
			locks := locksOn[order](t, coll)
			claimed, err := locks.TryClaim(t.Context(), ready, nil)
			require.NoError(t, err, "%v", mark)
			assert.Equal(t, "not done", claimed.Value.ID)
			_, err = locks.TryClaim(t.Context(), ready, nil)
			require.ErrorIs(t, err, ErrNoWork)
			require.NoError(t, claimed.Release())
			reopened, err := locks.Reopen(t.Context(), bson.D{})
			require.NoError(t, err)
			assert.Equal(t, 1, reopened, "the one that was done")
			require.NoError(t, locks.Close())
		})
	}
}

func TestAClaimWaitsForMaxWaitAtMost(t *testing.T) {
	for name, opts := range map[string][]mongolock.AcquireOption{"of the call": {mongolock.MaxWait(time.Second)}, "of With": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := locksOn[order](t, newReplicaSet(0).collection(t), With(mongolock.MaxWait(3*time.Second)))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				_, err := locks.Claim(ctx, ready, nil, opts...)
				require.ErrorIs(t, err, ErrNoWork)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.EqualError(t, err, "doclock: claim: MaxWait exceeded: doclock: nothing to claim")
				want := 3 * time.Second
				if opts != nil {
					want = time.Second
				}
				assert.InDelta(t, want, time.Since(began), float64(100*time.Millisecond))
				require.NoError(t, locks.Close())
			})
		})
	}
}

// Workers wait for as long as it takes.
func TestMaxWaitDoesNotDisturbAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := newReplicaSet(0).collection(t)
		var said lab.Text
		locks := locksOn[order](t, coll, With(mongolock.MaxWait(time.Second)), WithLogger(slog.New(slog.NewTextHandler(&said, nil))))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, locks.Work(ctx, 2, ready, nil, func(context.Context, *Claimed[order]) error { return nil }))
		assert.Empty(t, said.String())
		require.NoError(t, locks.Close())
	})
}
