package pathlock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// looks collects the events of a watcher until there are so many.
func looks(t *testing.T, f *mongoFixture, w watcher, n int) (got []string) {
	t.Helper()
	for began := time.Now(); len(got) < n && time.Since(began) < pace.Of(10*time.Second); time.Sleep(20 * time.Millisecond) {
		events, _, err := w.look(f.ctx())
		require.NoError(t, err)
		for _, event := range events {
			got = append(got, fmt.Sprint(event.Kind, event.Lock.Path))
		}
	}
	return got
}

func TestAWatcherThatLetsItsWordRunOutIsResetOnMongo(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	w := tree.store.watcher(tree).(*mongoWatcher)
	require.Empty(t, looks(t, f, w, 0))
	_, _, err := w.look(f.ctx())
	require.NoError(t, err)
	gone, err := tree.Lock(f.ctx(), exclusively("/gone"))
	require.NoError(t, err)
	stays, err := tree.Lock(f.ctx(), exclusively("/stays"))
	require.NoError(t, err)
	assert.Equal(t, []string{"added/gone", "added/stays"}, looks(t, f, w, 2))

	// As after a minute without a look: the word is over, and no process keeps records.
	_, err = f.coll.UpdateByID(f.ctx(), "files", bson.D{{Key: "$unset", Value: bson.D{{Key: fieldWatched, Value: ""}}}})
	require.NoError(t, err)
	_, err = f.coll.UpdateByID(f.ctx(), stays.Token, bson.D{{Key: "$unset", Value: bson.D{{Key: fieldGranted, Value: ""}}}})
	require.NoError(t, err, "its process has not said yet when it was granted")
	w.until = time.Time{}
	time.Sleep(wordFresh + 100*time.Millisecond) // until every process knows
	require.NoError(t, tree.Release(f.ctx(), gone.Token))
	assert.Equal(t, []string{"reset", "added/stays"}, looks(t, f, w, 2))

	_, err = f.coll.UpdateByID(f.ctx(), stays.Token, bson.D{{Key: "$set", Value: bson.D{{Key: fieldGranted, Value: time.Now().Add(time.Second)}}}})
	require.NoError(t, err, "it says so late")
	w.forget(interval{Earliest: stays.Since.Add(eventsLate + time.Second)}) // as seconds later
	_, err = tree.Lock(f.ctx(), exclusively("/new"))
	require.NoError(t, err)
	assert.Equal(t, []string{"added/new"}, looks(t, f, w, 1), "and goes on, and tells nothing twice")
}

// A find is no snapshot. This one passed the record of the first lock while it was held, and
// came to that of the second after the first had been released for it.
func TestAWatcherIsToldInOrderOfWhatAFindSawInParts(t *testing.T) {
	f := newMongo(t)
	tree, line := f.tree(f.storage()), &testserver.Line{}
	watching := f.tree(f.storage(line.Through))
	w := watching.store.watcher(watching).(*mongoWatcher)
	require.Empty(t, looks(t, f, w, 0))
	_, _, err := w.look(f.ctx())
	require.NoError(t, err)
	first, err := tree.Lock(f.ctx(), exclusively("/a"))
	require.NoError(t, err)
	torn := false
	line.Set(func(command string, c bson.Raw) testserver.Fate {
		if _, err := c.LookupErr("filter", "$or"); command != "find" || err != nil || torn {
			return testserver.Fate{}
		}
		torn = true
		return testserver.Fate{Rewrite: func(reply bson.Raw) bson.D {
			require.NoError(t, tree.Release(f.ctx(), first.Token))
			second, err := tree.Lock(f.ctx(), exclusively("/a/b"))
			require.NoError(t, err)
			later, err := f.coll.FindOne(f.ctx(), bson.D{{Key: "_id", Value: second.Token}}).Raw()
			require.NoError(t, err)
			cursor := reply.Lookup("cursor").Document()
			seen, err := cursor.Lookup("firstBatch").Array().Values()
			require.NoError(t, err)
			require.Len(t, seen, 1)
			batch := bson.E{Key: "firstBatch", Value: bson.A{seen[0], later}}
			return testserver.Edit(reply, []string{"cursor"}, bson.E{Key: "cursor", Value: testserver.Edit(cursor, []string{"firstBatch"}, batch)})
		}}
	})
	assert.Equal(t, []string{"added/a", "released/a", "added/a/b"}, looks(t, f, w, 3))
	assert.True(t, torn, "no find was changed: the test shows nothing")
}

func TestOfOneMillisecondAnEndIsToldBeforeWhatWaitedForIt(t *testing.T) {
	now := time.UnixMilli(1e12)
	of := func(kind Kind, token string, at time.Time) Event {
		return Event{Kind: kind, At: at, Lock: Lock{Token: token}}
	}
	want := []Event{
		of(Added, "first", now.Add(-time.Millisecond)), of(Released, "first", now),
		of(Added, "a brief one", now), of(Released, "a brief one", now), of(Added, "second", now.Add(time.Millisecond)),
	}
	for range 100 {
		got := slices.Clone(want)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		inOrder(got)
		require.Equal(t, want, got)
	}
}

// A Lock that is slower than its timeout is granted nothing. Its lock runs out all the same, and
// a rival or a watcher removes it.
func TestAWatcherIsNotToldOfTheEndOfALockThatWasNotGranted(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	w := tree.store.watcher(tree).(*mongoWatcher)
	require.Empty(t, looks(t, f, w, 0))
	_, _, err := w.look(f.ctx())
	require.NoError(t, err)
	brief := Lock{Token: newToken(), Path: "/slow", Mode: Exclusive, Depth: Infinity, Timeout: MinTimeout}
	added, o := w.mongoTree.add(f.ctx(), brief, &doubts{})
	require.NotNil(t, added, "%+v", o)
	require.Eventually(t, func() bool {
		events, _, err := w.look(f.ctx())
		require.NoError(t, err)
		require.Empty(t, events)
		left, err := f.coll.CountDocuments(f.ctx(), bson.D{{Key: "_id", Value: brief.Token}, {Key: fieldState, Value: stateGranted}})
		return err == nil && left == 0
	}, time.Minute, 20*time.Millisecond)

	granted, err := tree.Lock(f.ctx(), exclusively("/granted"))
	require.NoError(t, err)
	require.NoError(t, tree.Release(f.ctx(), granted.Token))
	assert.Equal(t, []string{"added/granted", "released/granted"}, looks(t, f, w, 2), "of others it is told")
}

func TestRecordsOfEndedLocksStayOnlyWhileTheTreeIsWatched(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	pair := func() {
		l, err := tree.Lock(f.ctx(), exclusively("/a"))
		require.NoError(t, err)
		require.NoError(t, tree.Release(f.ctx(), l.Token))
	}
	count := func() int64 {
		n, err := f.coll.CountDocuments(f.ctx(), bson.D{{Key: fieldState, Value: stateReleased}})
		require.NoError(t, err)
		return n
	}
	pair()
	assert.Zero(t, count(), "nobody watches")
	w := tree.store.watcher(tree).(*mongoWatcher)
	_, _, err := w.look(f.ctx())
	require.NoError(t, err)
	pair()
	assert.EqualValues(t, 1, count())

	_, err = f.coll.UpdateMany(f.ctx(), bson.D{{Key: fieldState, Value: stateReleased}}, bson.D{{Key: "$set", Value: bson.D{
		{Key: fieldEnded, Value: time.Now().Add(-150 * time.Second)},
		{Key: fieldUnder, Value: bson.A{bucket("files", time.Now().Add(-150*time.Second))}},
	}}})
	require.NoError(t, err)
	now, err := w.clock(f.ctx(), nil)
	require.NoError(t, err)
	w.sweep(f.ctx(), now)
	assert.Zero(t, count(), "watchers remove what they no longer need")
}

// A watcher of a tree with many locks remembers the last events, and no locks.
func TestAWatcherRemembersNoLocks(t *testing.T) {
	f := newMongo(t)
	f.many(2000, func(i int) Lock {
		return Lock{Path: fmt.Sprint("/", i), Mode: Exclusive, Depth: Zero, Timeout: time.Hour}
	})
	tree := f.tree(f.storage())
	w := tree.store.watcher(tree).(*mongoWatcher)
	for range 3 {
		_, _, err := w.look(f.ctx())
		require.NoError(t, err)
	}
	assert.Empty(t, w.told)
}
