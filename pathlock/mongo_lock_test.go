package pathlock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
)

// put inserts the record of another process, as it was at a time of the server's clock.
func (f *mongoFixture) put(l Lock, state string, at, until time.Time) {
	f.t.Helper()
	l.Token = newToken()
	d := announcement("files", l, until)
	d = append(d, bson.E{Key: "_id", Value: l.Token}, bson.E{Key: fieldAt, Value: at})
	for i := range d {
		if d[i].Key == fieldState {
			d[i].Value = state
		}
	}
	_, err := f.coll.InsertOne(f.ctx(), d)
	require.NoError(f.t, err)
}

// serverTime is the server's time, good to a few milliseconds.
func (f *mongoFixture) serverTime() time.Time {
	f.t.Helper()
	server, _, err := mongobase.New(f.coll, nil).Hello(f.ctx())
	require.NoError(f.t, err)
	return server
}

func exclusiveLock(path string) Lock {
	return Lock{Path: path, Mode: Exclusive, Depth: Infinity, Timeout: time.Minute}
}

func TestAnOlderPendingLockGoesFirst(t *testing.T) {
	f := newMongo(t)
	now := f.serverTime()
	const life = 700 * time.Millisecond
	f.put(exclusiveLock("/a"), statePending, now.Add(-time.Millisecond), now.Add(life))
	began := time.Now()
	_, err := f.tree(f.storage()).Lock(f.ctx(), exclusively("/a/b"))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), life-100*time.Millisecond, "it did not wait for the older one")
	assert.Less(t, time.Since(began), 5*time.Second, "it waited for longer than the other's life")
}

func TestAYoungerPendingLockIsRemoved(t *testing.T) {
	f := newMongo(t)
	now := f.serverTime()
	f.put(exclusiveLock("/a"), statePending, now.Add(time.Minute), now.Add(time.Hour))
	_, err := f.tree(f.storage()).Lock(f.ctx(), exclusively("/a/b"))
	require.NoError(t, err)
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{{Key: fieldState, Value: statePending}})
	require.NoError(t, err)
	assert.Zero(t, n)
}

func TestPendingLocksAreNeitherListedNorGuardAnything(t *testing.T) {
	f := newMongo(t)
	now := f.serverTime()
	f.put(exclusiveLock("/a"), statePending, now, now.Add(time.Hour))
	tree := f.tree(f.storage())
	all, err := tree.Locks(f.ctx())
	require.NoError(t, err)
	assert.Empty(t, all)
	assert.NoError(t, tree.Confirm(f.ctx(), nil, Modify("/a")))
}

// The grant finds nothing when a rival has removed the pending lock: the Lock starts
// again, under another token.
func TestALockWhosePendingOneWasRemovedStartsAgain(t *testing.T) {
	f := newMongo(t)
	m := f.storage()
	tree := f.tree(m)
	e := tree.engine.(*mongoTree)
	l := Lock{Token: newToken(), Path: "/a", Mode: Exclusive, Depth: Zero, Timeout: time.Minute}
	a, err := m.base.Begin(f.ctx(), l.Token, time.Minute)
	require.NoError(t, err)
	_, err = e.announce(a.In(f.ctx()), l, time.Minute)
	require.NoError(t, err)
	_, err = f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: l.Token}})
	require.NoError(t, err)
	_, again := e.grant(f.ctx(), a, l, sight{sent: m.base.Clock.Now()})
	assert.True(t, again)
	all, err := tree.Locks(f.ctx())
	require.NoError(t, err)
	assert.Empty(t, all)
}

// many inserts locks that nobody took one by one.
func (f *mongoFixture) many(n int, lock func(i int) Lock) {
	f.t.Helper()
	now := f.serverTime()
	var batch []any
	for i := range n {
		l := lock(i)
		d := append(announcement("files", l, now.Add(time.Hour)), bson.E{Key: "_id", Value: newToken()}, bson.E{Key: fieldAt, Value: now}, bson.E{Key: fieldSince, Value: now})
		for j := range d {
			if d[j].Key == fieldState {
				d[j].Value = stateGranted
			}
		}
		batch = append(batch, d)
	}
	_, err := f.coll.InsertMany(f.ctx(), batch)
	require.NoError(f.t, err)
}

func TestALockOfTheRootListsAThousandLocksAndCountsTheOthers(t *testing.T) {
	f := newMongo(t)
	f.many(2500, func(i int) Lock {
		return Lock{Path: fmt.Sprintf("/dir%d/file%d", i%50, i), Mode: Shared, Depth: Zero, Timeout: time.Hour}
	})
	_, err := f.tree(f.storage()).Lock(f.ctx(), exclusively("/"))
	var c *ConflictError
	require.ErrorAs(t, err, &c)
	assert.Equal(t, MaxListed, c.Len())
	assert.InDelta(t, 1500, c.More, 5)
	assert.ErrorContains(t, err, "more")
}

func TestARequestReadsOnlyWhatIsInItsWay(t *testing.T) {
	f := newMongo(t)
	f.many(3000, func(i int) Lock {
		return Lock{Path: fmt.Sprintf("/dir%d/file%d", i%50, i), Mode: Exclusive, Depth: Infinity, Timeout: time.Hour}
	})
	f.many(1000, func(int) Lock { return Lock{Path: "/dir1", Mode: Shared, Depth: Zero, Timeout: time.Hour} })
	m := f.storage()
	tree := f.tree(m)
	e := tree.engine.(*mongoTree)
	for what, c := range map[string]struct {
		r    Request
		want int
	}{
		"a new path beside them":                       {Request{Path: "/dir1/new", Mode: Exclusive, Depth: Infinity}, 0},
		"a file that is locked":                        {Request{Path: "/dir7/file7", Mode: Exclusive, Depth: Zero}, 1},
		"a path below one that is locked":              {Request{Path: "/dir7/file7/x/y", Mode: Shared, Depth: Zero}, 1},
		"a directory alone, shared by a thousand":      {Request{Path: "/dir1", Mode: Shared, Depth: Zero}, 0},
		"a directory with its files":                   {Request{Path: "/dir2", Mode: Shared, Depth: Infinity}, 60},
		"a directory of which another has a like name": {Request{Path: "/dir", Mode: Exclusive, Depth: Infinity}, 0},
		"the same path in another tree is no obstacle": {Request{Path: "/dir3/file", Mode: Exclusive, Depth: Zero}, 0},
	} {
		s, err := e.find(f.ctx(), m.base.Soft, e.inTheWay(c.r), 0)
		require.NoError(t, err)
		assert.Len(t, s.records, c.want, what)
	}
	l, err := tree.Lock(f.ctx(), Request{Path: "/dir1", Mode: Shared})
	require.NoError(t, err, "one more of a thousand that share a path")
	require.NoError(t, tree.Release(f.ctx(), "/dir1", l.Token))
}

func TestPathsAsDeepAsTheyCanBe(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	deep := strings.Repeat("/x", MaxPath/2)
	l, err := tree.Lock(f.ctx(), Request{Path: deep})
	require.NoError(t, err)
	_, err = tree.Lock(f.ctx(), exclusively("/x/x"))
	require.ErrorIs(t, err, ErrConflict)
	assert.ErrorIs(t, tree.Confirm(f.ctx(), nil, Delete("/x")), ErrLocked)
	require.NoError(t, tree.Release(f.ctx(), deep, l.Token))
	above, err := tree.Lock(f.ctx(), exclusively("/x"))
	require.NoError(t, err)
	_, err = tree.Lock(f.ctx(), Request{Path: deep, Mode: Shared})
	assert.ErrorIs(t, err, ErrConflict)
	assert.NoError(t, tree.Release(f.ctx(), deep, above.Token), "from a path that it covers")
}

// Paths whose hashes were equal would be told apart by the documents.
func TestTheNumbersOfPathsDiffer(t *testing.T) {
	seen := map[int64]string{}
	for _, tree := range []string{"a", "b", "a/b"} {
		for _, path := range []string{"/", "/a", "/b", "/a/b", "/ab", "/a/bb", "/a/b/c", "/%00", "/é"} {
			all := bases(tree, path)
			number, name := all[len(all)-1], tree+":"+path
			assert.Zero(t, number&allBits)
			assert.Emptyf(t, seen[number], "%s", name)
			seen[number] = name
		}
	}
	assert.Equal(t, bases("t", "/a/b/c")[:3], bases("t", "/a/b"), "a path has the numbers of those above it")
}

func TestARefreshOfABriefLockNearItsEndIsExact(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	r := exclusively("/a")
	r.Timeouts = []time.Duration{2 * time.Second}
	l, err := tree.Lock(f.ctx(), r)
	require.NoError(t, err)
	fresh, err := tree.Refresh(f.ctx(), l.Token, time.Hour) // it has less left than one command may take
	require.NoError(t, err)
	assert.Equal(t, time.Hour, fresh.Timeout)
	assert.Greater(t, fresh.Left, 59*time.Minute)
	short, err := tree.Refresh(f.ctx(), l.Token, 20*time.Second)
	require.NoError(t, err)
	assert.LessOrEqual(t, short.Left, 20*time.Second, "a refresh may shorten the time")
	all, err := tree.Locks(f.ctx())
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, short.ExpireAt, all[0].ExpireAt)
}

// What nobody will use is removed whether it was granted or not, and once removed it is
// not there any more.
func TestALockThatNobodyWillUseIsRemoved(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	e := tree.engine.(*mongoTree)
	granted, err := tree.Lock(f.ctx(), exclusively("/granted"))
	require.NoError(t, err)
	pending := Lock{Token: newToken(), Path: "/pending", Mode: Exclusive, Depth: Zero, Timeout: time.Minute}
	_, err = e.announce(f.ctx(), pending, time.Hour)
	require.NoError(t, err)
	for _, token := range []string{granted.Token, pending.Token, "urn:uuid:never"} {
		settled, err := e.takeBack(f.ctx(), token)
		require.NoError(t, err)
		assert.True(t, settled)
	}
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{})
	require.NoError(t, err)
	assert.Zero(t, n)
}
