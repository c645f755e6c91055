package doclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

func addOne(o *order) error { o.Total++; return nil }

// onASet runs a test with Locks on a set in memory, which has document "o".
func onASet(t *testing.T, test func(t *testing.T, s *replicaSet, coll *mongo.Collection, locks *Locks[order])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newReplicaSet(0)
		coll := s.collection(t)
		put(t, coll, order{ID: "o", State: "new", Total: 40})
		locks := locksOn[order](t, s.collection(t))
		require.NoError(t, locks.Update(t.Context(), ID("o"), addOne)) // the first one also sends a hello
		s.Take()
		test(t, s, coll, locks)
	})
}

// is requires that the document is free, and what it has.
func is(t *testing.T, coll *mongo.Collection, state string, total int) {
	t.Helper()
	raw := get(t, coll, "o")
	assert.Zero(t, raw.Lookup("lock"), "the lock")
	assert.Equal(t, state, raw.Lookup("state").StringValue())
	assert.EqualValues(t, total, raw.Lookup("total").AsInt64())
}

func TestAnUpdateTakesTwoCommandsOfWhichTheSecondWaitsForAMajority(t *testing.T) {
	onASet(t, func(t *testing.T, s *replicaSet, coll *mongo.Collection, locks *Locks[order]) {
		var sent []docdb.Command
		s.Before(func(c docdb.Command) { sent = append(sent, c) })
		require.NoError(t, locks.Update(t.Context(), ID("o"), func(o *order) error {
			assert.Equal(t, order{"o", "new", 41}, *o)
			o.State = "paid"
			return addOne(o)
		}))
		s.Before(nil)
		require.Len(t, sent, 2)
		assert.Equal(t, []string{"findAndModify", "findAndModify"}, []string{sent[0].Name, sent[1].Name})
		assert.False(t, sent[0].Majority(), "the lock")
		assert.Zero(t, sent[0].Number, "the lock: the driver may not send it again")
		assert.True(t, sent[1].Majority(), "the save")
		is(t, coll, "paid", 42)
	})
}

func TestAnUpdateTakesTwoCommandsOnAServer(t *testing.T) {
	needs(t, "atomic") // elsewhere a claim takes one more
	tap := &testserver.Tap{}
	coll := collection(t, tap.On)
	put(t, coll, order{ID: "o", State: "new"})
	locks := locksOn[order](t, coll)
	require.NoError(t, locks.Update(t.Context(), ID("o"), addOne))
	tap.Take()
	require.NoError(t, locks.Update(t.Context(), ID("o"), addOne))
	assert.Equal(t, []string{"findAndModify", "findAndModify"}, tap.TakeNames())
	is(t, coll, "new", 2)
}

func TestUpdatesOfManyProcessesLoseNothing(t *testing.T) {
	needs(t, "atomic")
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	const processes, each = 3, 20
	var all sync.WaitGroup
	for range processes {
		locks := locksOn[order](t, again(t, coll, uriOf(t)))
		for range 2 {
			all.Go(func() {
				for range each {
					assert.NoError(t, locks.Update(t.Context(), ID("o"), addOne))
				}
			})
		}
	}
	all.Wait()
	is(t, coll, "new", 2*processes*each)
}

func TestAnUpdateNamesADocumentAsAcquireDoes(t *testing.T) {
	onASet(t, func(t *testing.T, s *replicaSet, coll *mongo.Collection, locks *Locks[order]) {
		require.ErrorIs(t, locks.Update(t.Context(), ID("nobody"), addOne), ErrNotFound)
		s.Take()
		assert.ErrorContains(t, locks.Update(t.Context(), ID("o"), nil), "fn is nil")
		assert.ErrorContains(t, locks.Update(t.Context(), nil, addOne), "the filter: is nil")
		assert.ErrorIs(t, locks.Update(t.Context(), ID("o"), addOne, mongolock.Shared()), errors.ErrUnsupported)
		assert.Empty(t, s.Take(), "of bad input nothing is sent")
		is(t, coll, "new", 41)
	})
}

func TestAnUpdateRefusesATransaction(t *testing.T) {
	needs(t, "transactions")
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new", Total: 1})
	locks := locksOn[order](t, coll)
	require.NoError(t, coll.Database().Client().UseSession(t.Context(), func(ctx context.Context) error {
		session := mongo.SessionFromContext(ctx)
		require.NoError(t, session.StartTransaction())
		assert.ErrorContains(t, locks.Update(ctx, ID("o"), addOne), "ctx has a transaction")
		return session.AbortTransaction(ctx)
	}))
	is(t, coll, "new", 1)
}

func TestAnUpdateWhoseFunctionFailsSavesNothing(t *testing.T) {
	onASet(t, func(t *testing.T, s *replicaSet, coll *mongo.Collection, locks *Locks[order]) {
		broke := errors.New("broke")
		err := locks.Update(t.Context(), ID("o"), func(o *order) error { o.Total++; return broke })
		assert.Equal(t, broke, err)
		assert.Len(t, s.Take(), 2, "the lock and its release")
		is(t, coll, "new", 41)
		assert.PanicsWithValue(t, "oops", func() {
			_ = locks.Update(t.Context(), ID("o"), func(o *order) error { o.Total++; panic("oops") })
		})
		is(t, coll, "new", 41)
	})
}

func TestAnUpdateWhoseContextEndsSavesNothing(t *testing.T) {
	onASet(t, func(t *testing.T, _ *replicaSet, coll *mongo.Collection, locks *Locks[order]) {
		ctx, cancel := context.WithCancel(t.Context())
		err := locks.Update(ctx, ID("o"), func(o *order) error { cancel(); return addOne(o) })
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		is(t, coll, "new", 41)
	})
}

func TestAnUpdateWaitsForAHeldDocument(t *testing.T) {
	onASet(t, func(t *testing.T, s *replicaSet, coll *mongo.Collection, locks *Locks[order]) {
		doc := must(locksOn[order](t, s.collection(t)).Acquire(t.Context(), ID("o")))(t)
		time.AfterFunc(time.Minute, func() {
			doc.Value.State, doc.Value.Total = "paid", 7
			assert.NoError(t, doc.SaveAndRelease(t.Context()))
		})
		within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := locks.Update(within, ID("o"), addOne)
		require.ErrorIs(t, err, mongolock.ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, locks.Update(t.Context(), ID("o"), addOne))
		is(t, coll, "paid", 8)
	})
}

// An operator takes the document away, and another process changes it.
func TestAnUpdateBeginsAgainIfTheLockWasLost(t *testing.T) {
	onASet(t, func(t *testing.T, s *replicaSet, coll *mongo.Collection, locks *Locks[order]) {
		other := locksOn[order](t, s.collection(t))
		var seen []int
		require.NoError(t, locks.Update(t.Context(), ID("o"), func(o *order) error {
			if seen = append(seen, o.Total); len(seen) == 1 {
				_, err := other.Break(t.Context(), ID("o"), "it hangs", 0)
				require.NoError(t, err)
				require.NoError(t, other.Update(t.Context(), ID("o"), func(o *order) error { o.Total = 100; return nil }))
			}
			return addOne(o)
		}))
		assert.Equal(t, []int{41, 100}, seen)
		is(t, coll, "new", 101)
	})
}

// A function that is slower than its lock ever lasts would go on for ever.
func TestAnUpdateEndsWithItsContextOrMaxHoldIfTheLockIsLostEachTime(t *testing.T) {
	onASet(t, func(t *testing.T, _ *replicaSet, coll *mongo.Collection, locks *Locks[order]) {
		runs := 0
		slow := func(o *order) error { runs++; time.Sleep(10 * time.Second); return addOne(o) } // virtual: longer than the lock lasts
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := locks.Update(ctx, ID("o"), slow, mongolock.NoRenewal(), mongolock.TTL(time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, mongolock.ErrLost)
		assert.InDelta(t, 6, runs, 1)
		runs = 0
		err = locks.Update(t.Context(), ID("o"), slow, mongolock.MaxHold(time.Second))
		require.ErrorIs(t, err, mongolock.ErrMaxHold)
		assert.Equal(t, 1, runs)
		time.Sleep(time.Minute) // virtual: nothing may come of it later
		is(t, coll, "new", 41)
	})
}

func TestAnUpdateWhoseLockIsRolledBackBeginsAgain(t *testing.T) {
	onASet(t, func(t *testing.T, s *replicaSet, coll *mongo.Collection, locks *Locks[order]) {
		other := locksOn[order](t, s.collection(t))
		before := s.Len()
		var seen []int
		require.NoError(t, locks.Update(t.Context(), ID("o"), func(o *order) error {
			if seen = append(seen, o.Total); len(seen) == 1 {
				s.RollBack(before)
				require.NoError(t, other.Update(t.Context(), ID("o"), func(o *order) error { o.Total = 100; return nil }))
			}
			return addOne(o)
		}))
		assert.Equal(t, []int{41, 100}, seen)
		is(t, coll, "new", 101)
	})
}

// rounds has the first send of an Update's claim travel on while its connection breaks. It
// arrives when the lock was rolled back and another process has changed the document. rounds
// returns what fn was given, and what the document has in the end.
func rounds(t *testing.T) (seen []int, total int64) {
	onASet(t, func(t *testing.T, s *replicaSet, coll *mongo.Collection, locks *Locks[order]) {
		other := locksOn[order](t, s.collection(t))
		before := s.Len()
		arrive := s.CutOff(func(c docdb.Command) bool { return c.Name == "findAndModify" })
		require.NoError(t, locks.Update(t.Context(), ID("o"), func(o *order) error {
			if seen = append(seen, o.Total); len(seen) == 1 {
				s.RollBack(before)
				require.NoError(t, other.Update(t.Context(), ID("o"), func(o *order) error { o.Total = 100; return nil }))
				arrive()
			}
			return addOne(o)
		}))
		total = get(t, coll, "o").Lookup("total").AsInt64()
	})
	return seen, total
}

func TestALateCopyOfAnUpdatesClaimBringsNoLockBack(t *testing.T) {
	seen, total := rounds(t)
	assert.Equal(t, []int{41, 100}, seen)
	assert.EqualValues(t, 101, total)
}

// updateClaims are the claims of updates: they have no transaction number.
var updateClaims = faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool {
	return has(c, "update", "$set", "lock.id") && !has(c, "txnNumber")
})

func TestAnUpdateWhoseClaimHasNoReplyAsksAgainUnderAnotherID(t *testing.T) {
	f := behindProxy(t, true, 5*time.Second)
	lost := f.proxy.On(updateClaims.Next(1), faultproxy.DropReply())
	require.NoError(t, f.Update(t.Context(), ID("o"), func(o *order) error { o.State = "paid"; return nil }))
	applied(t, lost, 5*time.Second)
	assert.Equal(t, "paid", f.free(t, 0))
	f.proxy.On(updateClaims, faultproxy.DropReply())
	err := f.Update(t.Context(), ID("o"), func(o *order) error { o.State = "sent"; return nil })
	require.Error(t, err)
	assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "nothing was saved, for certain")
	assert.Equal(t, "paid", f.free(t, 10*time.Second))
}

func TestAnUpdateWhoseSaveHasNoReplyIsSaved(t *testing.T) {
	for _, retry := range []bool{true, false} {
		t.Run(fmt.Sprint("retryable writes ", retry), func(t *testing.T) {
			f := behindProxy(t, retry, 5*time.Second)
			f.proxy.On(saves.Next(1), faultproxy.DropCommand())
			require.NoError(t, f.Update(t.Context(), ID("o"), func(o *order) error { o.State = "paid"; return nil }), "the save was lost on its way")
			assert.Equal(t, "paid", f.free(t, 0))
			f.proxy.On(saves.Next(1), faultproxy.DropReply())
			err := f.Update(t.Context(), ID("o"), func(o *order) error { o.State = "sent"; return nil })
			if retry && can("retryable") {
				require.NoError(t, err, "the server remembers what it did")
			} else {
				require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
			}
			assert.Equal(t, "sent", f.free(t, 0))
		})
	}
}
