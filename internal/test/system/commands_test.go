package system

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/schedule"
)

// Stats counts the commands that the driver sent, for every package that is built on the locks.
func TestStatsCountTheCommandsThatAreSent(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime")
	for name, use := range map[string]func(*testing.T, *mongo.Collection) (mongolock.Stats, []string){
		"mongolock": useLocks, "doclock": useDocuments, "schedule": useJobs, "pathlock": usePaths,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tap := &testserver.Tap{}
			coll := testserver.Collection(t, testserver.Client(t, tap.On))
			stats, must := use(t, coll)
			sent := map[string]uint64{}
			for _, name := range tap.TakeNames() {
				sent[name]++
			}
			counted := maps.Clone(stats.Commands)
			maps.DeleteFunc(counted, func(_ string, n uint64) bool { return n == 0 })
			assert.Equal(t, sent, counted)
			for _, name := range must {
				assert.Positive(t, sent[name], "%s was not sent: the test shows nothing of it", name)
			}
		})
	}
}

func useLocks(t *testing.T, coll *mongo.Collection) (mongolock.Stats, []string) {
	t.Helper()
	one, err := mongolock.New(coll)
	require.NoError(t, err)
	lease, err := one.Acquire(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, lease.Renew(t.Context()))
	// This many are renewed and released in bulk. A command that is cut off before it is sent
	// counts too, so there is time enough.
	for i := range 20 {
		_, err := one.Acquire(t.Context(), fmt.Sprint("many ", i), mongolock.TTL(pace.Of(6*time.Second)))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return one.Stats().Commands["update"] > 0 }, pace.Of(20*time.Second), 10*time.Millisecond)
	waiter, err := mongolock.New(coll)
	require.NoError(t, err)
	_, err = waiter.Acquire(t.Context(), "a", mongolock.MaxWait(pace.Of(300*time.Millisecond)))
	require.ErrorIs(t, err, mongolock.ErrHeld)
	shared, err := one.Acquire(t.Context(), "shared", mongolock.Shared())
	require.NoError(t, err)
	require.NoError(t, shared.Release())
	for _, err := range one.List(t.Context(), "") {
		require.NoError(t, err)
	}
	require.NoError(t, one.Close())
	require.NoError(t, waiter.Close())
	return one.Stats().Plus(waiter.Stats()), []string{
		"hello", "listCollections", "createIndexes", "findAndModify", "find", "update", "delete", "create", "insert", "getMore", "killCursors",
	}
}

func useDocuments(t *testing.T, coll *mongo.Collection) (mongolock.Stats, []string) {
	t.Helper()
	quiet := testserver.Client(t).Database(coll.Database().Name()).Collection(coll.Name())
	_, err := quiet.InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: "one"}}, bson.D{{Key: "_id", Value: "two"}, {Key: "job", Value: true}}})
	require.NoError(t, err)
	docs, err := doclock.New[bson.M](coll)
	require.NoError(t, err)
	doc, err := docs.Acquire(t.Context(), doclock.ID("one"))
	require.NoError(t, err)
	byField, err := docs.TryAcquire(t.Context(), bson.D{{Key: "job", Value: true}})
	require.NoError(t, err)
	require.NoError(t, byField.Release())
	for _, err := range docs.List(t.Context()) {
		require.NoError(t, err)
	}
	require.NoError(t, doc.Release())
	claimed, err := docs.TryClaim(t.Context(), bson.D{{Key: "job", Value: true}}, nil)
	require.NoError(t, err)
	require.NoError(t, claimed.Release())
	require.NoError(t, docs.EnsureClaimIndex(t.Context(), bson.D{{Key: "job", Value: true}}, nil))
	require.NoError(t, docs.Close())
	return docs.Stats(), []string{"hello", "findAndModify", "find", "createIndexes"}
}

func useJobs(t *testing.T, coll *mongo.Collection) (mongolock.Stats, []string) {
	t.Helper()
	last := &lastStats{}
	jobs, err := schedule.New(coll, schedule.WithObserver(last))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	runs := 0
	require.NoError(t, jobs.Add("job", schedule.Every(time.Second), func(context.Context, schedule.Run) error {
		if runs++; runs == 2 {
			stop()
		}
		return nil
	}))
	_ = jobs.Run(ctx)
	return last.stats, []string{"hello", "findAndModify", "find"}
}

// A lastStats keeps the numbers of a client that is closed.
type lastStats struct{ stats mongolock.Stats }

func (*lastStats) Begin(ctx context.Context, _ mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	return ctx, nil
}

func (l *lastStats) Watch(stats func() mongolock.Stats) (stop func()) {
	return func() { l.stats = stats() }
}

func usePaths(t *testing.T, coll *mongo.Collection) (mongolock.Stats, []string) {
	t.Helper()
	storage, err := pathlock.OnMongo(coll)
	require.NoError(t, err)
	tree, err := pathlock.New(storage, "files")
	require.NoError(t, err)
	other, err := pathlock.New(storage, "others")
	require.NoError(t, err)
	lock, err := tree.Lock(t.Context(), pathlock.Request{Path: "/a", Depth: pathlock.Infinity})
	require.NoError(t, err)
	_, err = other.Lock(t.Context(), pathlock.Request{Path: "/a", Depth: pathlock.Infinity})
	require.NoError(t, err)
	_, err = tree.Refresh(t.Context(), lock.Token, time.Minute)
	require.NoError(t, err)
	_, err = tree.Locks(t.Context())
	require.NoError(t, err)
	require.NoError(t, tree.Release(t.Context(), lock.Token))
	require.NoError(t, tree.Close())
	require.NoError(t, other.Close())
	assert.Nil(t, other.Stats().Commands, "the first tree has those of both")
	return tree.Stats().Plus(other.Stats()), []string{"hello", "findAndModify", "createIndexes"}
}
