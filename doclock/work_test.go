package doclock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func TestWorkCompletesEachDocumentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := newReplicaSet(0).collection(t)
		for range 50 {
			put(t, coll, bson.M{"state": "ready"})
		}
		locks := locksOn[bson.M](t, coll)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var mu sync.Mutex
		seen := map[any]int{}
		require.NoError(t, locks.Work(ctx, 4, ready, nil, func(_ context.Context, msg *Claimed[bson.M]) error {
			mu.Lock()
			defer mu.Unlock()
			seen[msg.Value["_id"]]++
			msg.Value["sent"] = true
			return nil
		}))
		assert.Len(t, seen, 50)
		for id, n := range seen {
			assert.Equal(t, 1, n, "%v", id)
		}
		done, err := coll.CountDocuments(t.Context(), bson.M{"lock.done": true, "sent": true})
		require.NoError(t, err)
		assert.EqualValues(t, 50, done)
		require.NoError(t, locks.Close())
	})
}

// Somebody gives a document more attempts by hand.
func TestWorkGoesOnWithANegativeNumberOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := newReplicaSet(0).collection(t)
		put(t, coll, bson.M{"_id": "m", "state": "ready"})
		locks := locksOn[bson.M](t, coll, MaxAttempts(6))
		must(locks.TryClaim(t.Context(), ready, nil))(t).Release()
		_, err := coll.UpdateOne(t.Context(), bson.M{"_id": "m"}, bson.M{"$set": bson.M{"lock.attempts": -3}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		tried := 0
		require.NoError(t, locks.Work(ctx, 1, ready, nil, func(context.Context, *Claimed[bson.M]) error {
			tried++
			return errors.New("not yet")
		}))
		assert.Equal(t, 9, tried)
		require.NoError(t, locks.Close())
	})
}

// The server refuses each claim of one document. Somebody mends it in the end.
func TestWorkGetsPastADocumentThatCannotBeClaimed(t *testing.T) {
	for name, bad := range map[string]bson.M{
		"attempts that are text":  {"_id": "a", "state": "ready", "lock": bson.M{fieldVersion: shape, "expireAt": time.UnixMilli(0), "attempts": "3"}},
		"an _id that is too long": {"_id": strings.Repeat("a", maxKey), "state": "ready"},
	} {
		synctest.Test(t, func(t *testing.T) {
			set := newReplicaSet(0)
			coll := set.collection(t)
			put(t, coll, bad, bson.M{"_id": "b", "state": "ready"})
			var log bytes.Buffer
			locks := locksOn[bson.M](t, coll, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var got []any
			time.AfterFunc(30*time.Minute, func() { _, _ = coll.UpdateMany(ctx, bson.D{}, bson.M{"$unset": bson.M{"lock.attempts": ""}}) })
			require.NoError(t, locks.Work(ctx, 2, ready, bson.M{"_id": 1}, func(_ context.Context, msg *Claimed[bson.M]) error {
				got = append(got, msg.Value["_id"])
				return nil
			}))
			assert.Equal(t, "b", got[0], name)
			assert.Equal(t, name == "attempts that are text", len(got) == 2, "%s: %v", name, got)
			assert.InDelta(t, 6, strings.Count(log.String(), "a worker cannot claim"), 2, "%s: ever more seldom", name)
			assert.Less(t, set.claimsSent(), 20, name)
			require.NoError(t, locks.Close())
		})
	}
}

func TestANumberOfAttemptsMayBeADecimal(t *testing.T) {
	raw, err := bson.Marshal(bson.M{"lock": bson.M{fieldVersion: shape, "expireAt": time.Now(), "attempts": must(bson.ParseDecimal128("4"))(t)}})
	require.NoError(t, err)
	assert.Equal(t, 4, readLock(raw, "lock").attempts)
}

func TestANumberThatCountsNoAttemptsIsMoreThanAllThatAreAllowed(t *testing.T) {
	for _, attempts := range []any{math.NaN(), math.Inf(-1), 1e300, int64(math.MaxInt64)} {
		raw, err := bson.Marshal(bson.M{"lock": bson.M{fieldVersion: shape, "expireAt": time.Now(), "attempts": attempts}})
		require.NoError(t, err)
		assert.Equal(t, math.MaxInt32, readLock(raw, "lock").attempts)
	}
}

func TestWorkThatFailsComesBackLaterAndLaterAndIsSetAsideInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := newReplicaSet(0).collection(t)
		put(t, coll, bson.M{"_id": "bad", "state": "ready"})
		var log bytes.Buffer
		locks := locksOn[bson.M](t, coll, MaxAttempts(6), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var at []time.Time
		require.NoError(t, locks.Work(ctx, 2, ready, nil, func(_ context.Context, msg *Claimed[bson.M]) error {
			at = append(at, time.Now())
			msg.Value["state"] = "half done"
			return errors.New("no receiver")
		}))
		require.Len(t, at, 6)
		for i := 1; i < len(at); i++ {
			assert.GreaterOrEqual(t, at[i].Sub(at[i-1]), time.Second<<(i-1)/2, "before attempt %d", i+1)
		}
		var dead []Dead[bson.M]
		for d, err := range locks.Dead(t.Context(), bson.D{}) {
			require.NoError(t, err)
			dead = append(dead, d)
		}
		require.Len(t, dead, 1)
		assert.Equal(t, "ready", dead[0].Value["state"], "a change that failed was saved")
		assert.Contains(t, log.String(), "no receiver")
		require.NoError(t, locks.Close())
	})
}

func TestWorkThatHasEndedItsClaimIsLeftAsItIs(t *testing.T) {
	for name, end := range endings {
		synctest.Test(t, func(t *testing.T) {
			coll := newReplicaSet(0).collection(t)
			put(t, coll, bson.M{"_id": "m", "state": "ready"})
			locks := locksOn[bson.M](t, coll)
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, locks.Work(ctx, 1, ready, nil, func(ctx context.Context, msg *Claimed[bson.M]) error {
				defer cancel()
				_ = end(msg, ctx)
				return nil
			}))
			done, err := coll.CountDocuments(t.Context(), bson.M{"lock.done": true})
			require.NoError(t, err)
			assert.Equal(t, name == "Complete", done == 1, name)
			require.NoError(t, locks.Close())
		})
	}
}

func TestWorkThatIsStoppedPutsItsDocumentBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReplicaSet(0)
		coll := s.collection(t)
		put(t, coll, bson.M{"_id": "m", "state": "ready"})
		locks := locksOn[bson.M](t, coll)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, locks.Work(ctx, 3, ready, nil, func(ctx context.Context, _ *Claimed[bson.M]) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}))
		next, err := locksOn[bson.M](t, s.collection(t)).TryClaim(t.Context(), ready, nil)
		require.NoError(t, err)
		require.NoError(t, next.Release())
	})
}

// A deployment stops a worker in the middle of its work, again and again.
func TestWorkThatIsStoppedDoesNotCountAsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReplicaSet(0)
		coll := s.collection(t)
		put(t, coll, bson.M{"_id": "m", "state": "ready"})
		for range 4 {
			locks := locksOn[bson.M](t, s.collection(t), MaxAttempts(2))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			require.NoError(t, locks.Work(ctx, 1, ready, nil, func(ctx context.Context, msg *Claimed[bson.M]) error {
				assert.Equal(t, 1, msg.Attempts())
				cancel()
				<-ctx.Done()
				return ctx.Err()
			}))
			require.NoError(t, locks.Close())
		}
		msg, err := locksOn[bson.M](t, coll, MaxAttempts(2)).TryClaim(t.Context(), ready, nil)
		require.NoError(t, err, "it was set aside although no work on it has failed")
		require.NoError(t, msg.Release())
	})
}

// What is wrong is found when the work is done: its claim must not come back as fast as it can be
// claimed.
func TestWorkWhoseEndIsRefusedComesBackLaterAndLater(t *testing.T) {
	for name, work := range map[string]func(context.Context, *Claimed[bson.M]) error{
		"Value cannot be encoded": func(_ context.Context, msg *Claimed[bson.M]) error {
			msg.Value["a.b"] = 1
			return nil
		},
		"… and the work completes it": func(ctx context.Context, msg *Claimed[bson.M]) error {
			msg.Value["a.b"] = 1
			return msg.Complete(ctx)
		},
		"a Requeue before now": func(ctx context.Context, msg *Claimed[bson.M]) error { return msg.Requeue(ctx, -1) },
	} {
		synctest.Test(t, func(t *testing.T) {
			coll := newReplicaSet(0).collection(t)
			put(t, coll, bson.M{"_id": "m", "state": "ready"})
			var log bytes.Buffer
			locks := locksOn[bson.M](t, coll, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			times := 0
			require.NoError(t, locks.Work(ctx, 1, ready, nil, func(ctx context.Context, msg *Claimed[bson.M]) error {
				if times++; times == 20 {
					cancel()
				}
				return work(ctx, msg)
			}))
			assert.Less(t, times, 10, "%s: claimed again and again at once", name)
			assert.Greater(t, times, 3, "%s: it does not come back", name)
			assert.Contains(t, log.String(), "the work on a document failed", name)
			require.NoError(t, locks.Close())
		})
	}
}

// The server refuses what the work has made of a document, such as a second value of a unique field.
func TestWorkWhoseValueTheServerRefusesComesBackLater(t *testing.T) {
	testserver.Need(t, "atomic") // the embedded one calls it an internal error, whose outcome is unknown
	coll := collection(t)
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "seat", Value: 1}}, Options: options.Index().SetUnique(true).SetSparse(true)})
	require.NoError(t, err)
	put(t, coll, bson.M{"_id": "m", "state": "ready"}, bson.M{"_id": "other", "seat": 1})
	locks := locksOn[bson.M](t, coll)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	times := 0
	require.NoError(t, locks.Work(ctx, 1, ready, nil, func(_ context.Context, msg *Claimed[bson.M]) error {
		times++
		msg.Value["seat"] = 1
		return nil
	}))
	assert.Less(t, times, 6, "claimed again and again at once")
	assert.NotContains(t, get(t, coll, "m").String(), "seat", "what was refused is saved")
	require.NoError(t, locks.Close())
}

// The claim is completed in a transaction, which is then aborted: the work has failed.
func TestWorkWhoseTransactionIsAbortedComesBackLater(t *testing.T) {
	needs(t, "transactions")
	coll := collection(t)
	put(t, coll, bson.M{"_id": "m", "state": "ready"}, bson.M{"_id": "committed", "state": "ready"})
	locks := locksOn[bson.M](t, coll)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	times := map[any]int{}
	require.NoError(t, locks.Work(ctx, 1, ready, nil, func(ctx context.Context, msg *Claimed[bson.M]) error {
		id := msg.Value["_id"]
		times[id]++
		session := must(coll.Database().Client().StartSession())(t)
		defer session.EndSession(context.Background())
		require.NoError(t, session.StartTransaction())
		in := mongo.NewSessionContext(ctx, session)
		require.NoError(t, msg.Complete(in))
		if id == "committed" {
			return errors.Join(errors.New("after the commit"), session.CommitTransaction(in))
		}
		return errors.Join(errors.New("no receiver"), session.AbortTransaction(in))
	}))
	assert.Less(t, times["m"], 6, "claimed again and again at once")
	assert.Greater(t, times["m"], 1)
	assert.Equal(t, 1, times["committed"])
	assert.Contains(t, get(t, coll, "committed").String(), fieldDone)
	require.NoError(t, locks.Close())
}

func TestWorkRefusesWhatCannotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locksOn[bson.M](t, newReplicaSet(0).collection(t))
		fn := func(context.Context, *Claimed[bson.M]) error { return nil }
		assert.ErrorContains(t, locks.Work(t.Context(), 0, ready, nil, fn), "n is 0")
		assert.ErrorContains(t, locks.Work(t.Context(), 1, ready, nil, nil), "fn is nil")
		assert.ErrorContains(t, locks.Work(t.Context(), 1, nil, nil, fn), "the filter")
		assert.ErrorContains(t, locks.Work(t.Context(), 1, ready, nil, fn, mongolock.Shared()), "Shared")
		time.AfterFunc(time.Second, func() { _ = locks.Close() })
		assert.ErrorIs(t, locks.Work(t.Context(), 3, ready, nil, fn), mongolock.ErrClosed)
	})
}

// More of them than one look finds: some do not decode, in the others stands no lock of this package.
func TestWorkGetsPastAnyNumberOfDocumentsThatCannotBeClaimed(t *testing.T) {
	type order struct {
		ID string `bson:"_id"`
		N  int    `bson:"n"`
	}
	synctest.Test(t, func(t *testing.T) {
		coll := newReplicaSet(0).collection(t)
		var docs []any
		for i := range 30 {
			docs = append(docs, bson.M{"_id": fmt.Sprintf("a%02d", i), "state": "ready", "n": "no number"})
		}
		for i := range windowMost + 100 {
			docs = append(docs, bson.M{"_id": fmt.Sprintf("b%04d", i), "state": "ready", "lock": bson.M{"doclock": 1, "id": 17}})
		}
		put(t, coll, append(docs, bson.M{"_id": "good", "state": "ready", "n": 1})...)
		locks := locksOn[order](t, coll)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := false
		require.NoError(t, locks.Work(ctx, 1, ready, bson.D{{Key: "_id", Value: 1}}, func(context.Context, *Claimed[order]) error {
			done = true
			cancel()
			return nil
		}))
		assert.True(t, done)
		require.NoError(t, locks.Close())
	})
}

// Each of them is tried again ever more seldom: else those that are tried first are due again before the last is reached.
func TestADocumentThatDoesNotDecodeIsTriedAgainEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := newReplicaSet(0).collection(t)
		put(t, coll, bson.M{"_id": "a", "state": "ready", "total": "no number"})
		locks := locksOn[order](t, coll)
		ctx, cancel := context.WithTimeout(t.Context(), 16*time.Minute)
		defer cancel()
		require.NoError(t, locks.Work(ctx, 1, ready, nil, func(context.Context, *Claimed[order]) error { return nil }))
		assert.Equal(t, 5, readLock(get(t, coll, "a"), "lock").attempts, "at once, after a minute, and 2, 4 and 8 more")
		require.NoError(t, locks.Close())
	})
}

func TestWorkReturnsTheErrorOfAWrongFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locksOn[bson.M](t, newReplicaSet(0).collection(t))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := locks.Work(ctx, 3, bson.M{"state": bson.M{"$no": 1}}, nil, func(context.Context, *Claimed[bson.M]) error { return nil })
		require.ErrorContains(t, err, "$no")
		require.NoError(t, ctx.Err(), "it went on asking")
		require.NoError(t, locks.Close())
	})
}

func TestWorkThatEndsItsClaimAndFailsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := newReplicaSet(0).collection(t)
		put(t, coll, bson.M{"_id": "m", "state": "ready"})
		var log bytes.Buffer
		locks := locksOn[bson.M](t, coll, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, locks.Work(ctx, 1, ready, nil, func(ctx context.Context, msg *Claimed[bson.M]) error {
			return errors.Join(errors.New("no receiver"), msg.Requeue(ctx, time.Hour))
		}))
		assert.Contains(t, log.String(), "no receiver")
		require.NoError(t, locks.Close())
	})
}

func TestADocumentWhoseWorkStallsIsFreeAgain(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o"), mongolock.TTL(time.Hour), mongolock.MaxStall(300*time.Millisecond)))(t)
	for range 5 {
		time.Sleep(100 * time.Millisecond) // real: a third of MaxStall
		doc.Lease().Progress()
	}
	next := must(locks.Acquire(t.Context(), ID("o"), mongolock.MaxWait(time.Minute)))(t)
	assert.ErrorIs(t, doc.Lease().Err(), mongolock.ErrStalled)
	assert.ErrorIs(t, doc.Save(t.Context()), mongolock.ErrLost, "what it was to write is not written")
	assert.NoError(t, next.Lease().Err())
}
