package doclock

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func TestInspectShowsTheHolderByAnyNameOfTheDocument(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"}, order{ID: "p", State: "sent"}, order{ID: "q", State: "sent"})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o"), mongolock.Note("billing")))(t)
	for _, filter := range []any{ID("o"), bson.M{"state": "new"}} {
		status, err := locks.Inspect(t.Context(), filter)
		require.NoError(t, err)
		assert.Equal(t, `{"_id":"o"}`, status.Key)
		require.Len(t, status.Holders, 1)
		assert.Equal(t, doc.Lease().ID(), status.Holders[0].ID)
		assert.Equal(t, "billing", status.Holders[0].Note)
		assert.True(t, status.Live(status.Holders[0]))
	}
	status, err := locks.Inspect(t.Context(), ID("p"))
	require.NoError(t, err)
	assert.Empty(t, status.Holders, "of a free document")
	_, err = locks.Inspect(t.Context(), ID("nobody"))
	assert.ErrorIs(t, err, ErrNotFound)
	_, err = locks.Inspect(t.Context(), bson.M{"state": "sent"})
	assert.ErrorIs(t, err, ErrAmbiguous)
	_, err = locks.Inspect(t.Context(), nil)
	assert.ErrorContains(t, err, "the filter: is nil")
}

func TestListYieldsTheDocumentsWithAHolderInOrder(t *testing.T) {
	testserver.Need(t, "!router") // behind one the date does not end a lease
	coll := collection(t)
	put(t, coll, order{ID: "a"}, order{ID: "b"}, order{ID: "c"}, order{ID: "d"})
	locks := locksOn[order](t, coll)
	for _, id := range []string{"c", "a", "d"} {
		must(locks.Acquire(t.Context(), ID(id)))(t)
	}
	expire(t, coll, "d")
	set(t, coll, "b", "lock", "the application's")
	var keys []string
	var live []bool
	for status, err := range locks.List(t.Context()) {
		require.NoError(t, err)
		keys = append(keys, status.Key)
		live = append(live, status.Live(status.Holders[0]))
	}
	assert.Equal(t, []string{`{"_id":"a"}`, `{"_id":"c"}`, `{"_id":"d"}`}, keys)
	assert.Equal(t, []bool{true, true, false}, live)
}

func TestBreakTakesADocumentFromItsHolderAndWakesTheWaiter(t *testing.T) {
	t.Parallel()
	coll := sagas(t)
	put(t, coll, bson.M{"_id": "o", "key": "17", "type": "order"})
	locks := locksOn[saga](t, coll)
	doc := must(locks.Acquire(t.Context(), bson.M{"key": "17", "type": "order"}, mongolock.TTL(time.Minute)))(t)
	waiter := acquiring(t, locksOn[saga](t, coll), ID("o"))
	awaited(t, coll, "o")
	marked, err := locks.Break(t.Context(), ID("o"), "it hangs", 0)
	require.NoError(t, err)
	require.Len(t, marked, 1)
	assert.Equal(t, doc.Lease().ID(), marked[0].ID)
	next := <-waiter
	require.NotNil(t, next)
	doc.Value.Step = 7
	assert.ErrorIs(t, doc.Save(t.Context()), mongolock.ErrLost)
	assert.Equal(t, next.Lease().ID(), readLock(get(t, coll, "o"), "lock").holder().ID, "the holder")

	_, err = locks.Break(t.Context(), ID("nobody"), "why", 0)
	assert.ErrorIs(t, err, ErrNotFound)
}

func TestABrokenHolderLearnsTheReason(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	must(locks.Break(t.Context(), ID("o"), "it hangs", -1))(t) // only marked
	doc.Value.State = "late"
	err := doc.Save(t.Context())
	assert.ErrorIs(t, err, mongolock.ErrBroken)
	assert.ErrorContains(t, err, "it hangs")
	assert.Equal(t, "new", get(t, coll, "o").Lookup("state").StringValue())
}

func TestADetachedDocumentIsResumedWithItsTokenByAnotherProcess(t *testing.T) {
	coll := sagas(t)
	put(t, coll, bson.D{{Key: "_id", Value: int64(1)}, {Key: "key", Value: "17"}, {Key: "type", Value: "order"}, {Key: "step", Value: 1}})
	for name, filter := range map[string]any{"by _id": ID(1), "by unique fields": bson.M{"key": "17", "type": "order"}} {
		t.Run(name, func(t *testing.T) {
			doc := must(locksOn[saga](t, coll).Acquire(t.Context(), filter))(t)
			doc.Value.Step++
			require.NoError(t, doc.Save(t.Context()))
			ticket := must(doc.Lease().Detach(t.Context()))(t)
			assert.ErrorIs(t, doc.Save(t.Context()), mongolock.ErrDetached)

			theirs := locksOn[saga](t, coll)
			_, err := theirs.TryAcquire(t.Context(), filter)
			require.ErrorIs(t, err, mongolock.ErrHeld)
			resumed := must(theirs.Resume(t.Context(), ticket))(t)
			assert.Equal(t, doc.Lease().Token(), resumed.Lease().Token())
			assert.Equal(t, doc.Value, resumed.Value)
			resumed.Value.Step++
			require.NoError(t, resumed.SaveAndRelease(t.Context()))
			assert.EqualValues(t, doc.Value.Step+1, get(t, coll, 1).Lookup("step").AsInt64())
			_, err = theirs.Resume(t.Context(), ticket)
			assert.ErrorIs(t, err, mongolock.ErrLost, "resumed twice")
		})
	}
	_, err := locksOn[saga](t, coll).Resume(t.Context(), "nonsense")
	assert.ErrorContains(t, err, "not a Detach ticket")
}

func TestADetachedClaimIsResumedAsTheSameAttempt(t *testing.T) {
	coll := collection(t)
	messages(t, coll, 1)
	c := must(locksOn[message](t, coll).TryClaim(t.Context(), pending, oldest))(t)
	ticket := must(c.Lease().Detach(t.Context()))(t)
	resumed := must(locksOn[message](t, coll).ResumeClaim(t.Context(), ticket))(t)
	assert.Equal(t, 1, resumed.Attempts())
	resumed.Value.By = "the other"
	require.NoError(t, resumed.Complete(t.Context()))
	assert.True(t, readLock(get(t, coll, 0), "lock").done)
	assert.Equal(t, "the other", get(t, coll, 0).Lookup("by").StringValue())
}

// A replies collects how long the replies to commands of a client are.
type replies struct {
	mu  sync.Mutex // protects all
	all []string   // the commands with a reply over 10,000 bytes
}

func (r *replies) On(o *options.ClientOptions) {
	o.SetMonitor(&event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(e.Reply) > 10_000 && e.CommandName != "collStats" { // which is asked of a router once, and is about no document
			r.all = append(r.all, e.CommandName)
		}
	}})
}

func (r *replies) take() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.all = r.all, nil
	return all
}

func TestOnlyTheReplyThatGrantsADocumentCarriesIt(t *testing.T) {
	needs(t, "atomic") // FerretDB needs one more command for a token
	var mine, theirs replies
	coll := collection(t, mine.On)
	put(t, coll, bson.D{{Key: "_id", Value: 1}, {Key: "state", Value: "pending"}, {Key: "blob", Value: strings.Repeat("x", 100_000)}})
	locks := locksOn[bson.M](t, coll)
	other := locksOn[bson.M](t, again(t, coll, uriOf(t), theirs.On))

	doc := must(locks.Acquire(t.Context(), ID(1)))(t)
	assert.Equal(t, []string{"findAndModify"}, mine.take(), "acquire")
	_, err := other.TryAcquire(t.Context(), ID(1))
	require.ErrorIs(t, err, mongolock.ErrHeld)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = other.Acquire(ctx, ID(1)) // leaves its word
	require.ErrorIs(t, err, mongolock.ErrHeld)
	must(other.Inspect(t.Context(), ID(1)))(t)
	assert.Empty(t, theirs.take(), "refusals, the word of a waiter, looks")
	require.NoError(t, doc.Lease().Renew(t.Context()))
	doc.Value["state"] = "paid"
	require.NoError(t, doc.Save(t.Context()))
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	assert.Empty(t, mine.take(), "renewal, saves, release")

	c := must(locks.TryClaim(t.Context(), bson.M{"state": "paid"}, nil))(t)
	assert.Equal(t, []string{"findAndModify"}, mine.take(), "claim")
	require.NoError(t, c.Requeue(t.Context(), 0))
	c = must(locks.TryClaim(t.Context(), bson.M{"state": "paid"}, nil))(t)
	mine.take()
	require.NoError(t, c.Remove(t.Context()))
	assert.Empty(t, mine.take(), "requeue, remove")
}

// Replacing the whole document removes the lock with the rest. The holder learns of it at
// its next save or renewal, and overwrites nothing of the next one.
func TestAHolderWhoseDocumentWasReplacedSavesNothing(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	_, err := coll.ReplaceOne(t.Context(), ID("o"), order{ID: "o", State: "replaced"})
	require.NoError(t, err)
	next := must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
	assert.Greater(t, next.Lease().Token(), doc.Lease().Token())
	doc.Value.State = "late"
	assert.ErrorIs(t, doc.Save(t.Context()), mongolock.ErrLost)
	require.Error(t, doc.Lease().Renew(t.Context()))
	assert.ErrorIs(t, doc.Lease().Err(), mongolock.ErrLost)
	assert.Equal(t, "replaced", get(t, coll, "o").Lookup("state").StringValue())
	assert.NoError(t, next.Lease().Err())
}
