package pathlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// put inserts the record of another process, as it was at a time of the server's clock.
func (f *mongoFixture) put(l Lock, at, until time.Time) (token string) {
	f.t.Helper()
	l.Token, l.Since = newToken(), at
	r := record{Lock: l, until: until, rev: bson.NewObjectID()}
	_, err := f.coll.InsertOne(f.ctx(), append(r.encoded("files"), bson.E{Key: "_id", Value: l.Token}, bson.E{Key: fieldAt, Value: at}))
	require.NoError(f.t, err)
	return l.Token
}

// serverTime is the server's time, good to a few milliseconds.
func (f *mongoFixture) serverTime() time.Time {
	f.t.Helper()
	server, _, err := server.New(f.coll, nil).Hello(f.ctx())
	require.NoError(f.t, err)
	return server
}

func exclusiveLock(path string) Lock {
	return Lock{Path: path, Mode: Exclusive, Depth: Infinity, Timeout: time.Minute}
}

// A lock that was added a moment ago may yet be withdrawn: a later one is not refused for
// it before that is known.
func TestALockIsNotRefusedForOneThatIsWithdrawnAtOnce(t *testing.T) {
	f := newMongo(t)
	var other atomic.Value // the token; withdrawn once it was seen
	tree := f.tree(f.storage(func(o *options.ClientOptions) {
		o.SetMonitor(&event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if token := other.Load(); e.CommandName == "find" && token != nil {
				_, _ = f.coll.DeleteOne(context.Background(), bson.D{{Key: "_id", Value: token}})
			}
		}})
	}))
	_, err := tree.Lock(f.ctx(), exclusively("/warm"))
	require.NoError(t, err)
	other.Store(f.put(exclusiveLock("/a"), f.serverTime().Add(time.Minute), f.serverTime().Add(time.Hour)))
	_, err = tree.Lock(f.ctx(), exclusively("/a/b"))
	assert.NoError(t, err)
}

// The other is a process that was killed between its two steps: its lock blocks like that of a
// process that was killed while it held one.
func TestALockThatIsNotWithdrawnIsInTheWayAfterAMoment(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	_, err := tree.Lock(f.ctx(), exclusively("/warm"))
	require.NoError(t, err)
	for _, ahead := range []time.Duration{-time.Millisecond, time.Minute} { // it was added earlier, or later, as the clock says
		f.put(exclusiveLock(fmt.Sprint("/a", ahead)), f.serverTime().Add(ahead), f.serverTime().Add(time.Hour))
		began := time.Now()
		_, err = tree.Lock(f.ctx(), exclusively(fmt.Sprint("/a", ahead, "/b")))
		assert.ErrorIs(t, err, ErrConflict)
		assert.Less(t, time.Since(began), pace.Of(5*time.Second))
		assert.EqualValues(t, 1, f.count(bson.D{{Key: fieldPath, Value: bson.D{{Key: "$regex", Value: "^/a" + ahead.String()}}}}), "its own is withdrawn")
	}
}

func (f *mongoFixture) count(filter bson.D) int64 {
	f.t.Helper()
	n, err := f.coll.CountDocuments(f.ctx(), filter)
	require.NoError(f.t, err)
	return n
}

// Of locks that are added at once one is granted, however often that happens: no request is
// refused because of a lock that is not granted in the end.
func TestOneOfSeveralLocksAddedAtOnceIsGranted(t *testing.T) {
	f := newMongo(t)
	var trees []*Tree
	for range 5 {
		trees = append(trees, f.tree(f.storage()))
		_, err := trees[0].Lock(f.ctx(), exclusively(fmt.Sprint("/warm", len(trees))))
		require.NoError(t, err)
	}
	for round := range 20 {
		path := fmt.Sprint("/round", round)
		var granted atomic.Int64
		var all sync.WaitGroup
		for i, tree := range trees {
			all.Go(func() {
				_, err := tree.Lock(f.ctx(), exclusively(path+strings.Repeat("/x", i%2)))
				if err == nil {
					granted.Add(1)
				} else {
					assert.ErrorIs(t, err, ErrConflict)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 1, granted.Load(), "round %d", round)
	}
}

// On a server that takes a fifth of a second for each command, a quarter of a second after the
// other was added it has not looked yet: neither may take the other for granted.
func TestOfTwoLocksAtOnceOneIsGrantedHoweverSlowTheServer(t *testing.T) {
	f := newMongo(t)
	slow := &testserver.Line{}
	one, two := f.tree(f.storage(slow.Through)), f.tree(f.storage(slow.Through))
	for i, tree := range []*Tree{one, two} {
		_, err := tree.Lock(f.ctx(), exclusively(fmt.Sprint("/warm", i)))
		require.NoError(t, err)
	}
	slow.Set(func(string, bson.Raw) testserver.Fate {
		return testserver.Fate{Before: func() { time.Sleep(200 * time.Millisecond) }} // real: a slow server
	})
	first := make(chan error, 1)
	go func() {
		_, err := one.Lock(f.ctx(), exclusively("/a"))
		first <- err
	}()
	time.Sleep(100 * time.Millisecond) // real: the first one is between its commands
	_, second := two.Lock(f.ctx(), exclusively("/a"))
	granted := 0
	for _, err := range []error{<-first, second} {
		if err == nil {
			granted++
		} else {
			assert.ErrorIs(t, err, ErrConflict)
		}
	}
	assert.Equal(t, 1, granted)
}

// The lock of a waiter that was refused could not be withdrawn, and the look that follows its word
// fails too.
func TestALockOfAWaiterThatCouldNotBeWithdrawnIsTakenBack(t *testing.T) {
	testserver.Need(t, "!router")
	f := newMongo(t)
	var line testserver.Line
	slow, on := f.tree(f.storage(line.Through)), f.tree(f.storage())
	_, err := slow.Lock(f.ctx(), exclusively("/warm"))
	require.NoError(t, err)
	_, err = on.Lock(f.ctx(), shared("/a/b"))
	require.NoError(t, err)
	time.Sleep(doubtMost) // real: until it is no longer in doubt
	var finds, removals atomic.Int64
	refused := testserver.Fate{Instead: bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 8000}, {Key: "errmsg", Value: "not now"}}}
	line.Set(func(command string, c bson.Raw) testserver.Fate {
		in, _ := c.Lookup("find").StringValueOK() // or in the feed's collection
		switch id, _ := c.Lookup("query", "_id").StringValueOK(); {
		case in == f.coll.Name() && finds.Add(1) == 2, // the first is the look after the lock was added
			command == "findAndModify" && strings.HasPrefix(id, "urn:uuid:") && removals.Add(1) == 1:
			return refused
		}
		return testserver.Fate{}
	})
	ctx, cancel := context.WithCancel(f.ctx())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = slow.LockWait(ctx, exclusively("/a"))
	}()
	assert.Eventually(t, func() bool { return removals.Load() > 1 }, pace.Of(5*time.Second), 5*time.Millisecond, "it is taken back")
	cancel()
	<-over
	require.NoError(t, slow.Close()) // which waits for what it does in the background
	all, err := on.Locks(f.ctx())
	require.NoError(t, err)
	var paths []string
	for _, l := range all {
		paths = append(paths, l.Path)
	}
	assert.Equal(t, []string{"/a/b", "/warm"}, paths)
}

// A rival has removed the lock, because its time was over, before its Lock looked.
func TestALockThatWasRemovedBeforeItsLookStartsAgain(t *testing.T) {
	f := newMongo(t)
	m := f.storage()
	tree := f.tree(m)
	e := tree.store.(*mongoTree)
	l := Lock{Token: newToken(), Path: "/a", Mode: Exclusive, Depth: Zero, Timeout: time.Minute}
	var d doubts
	mine, o := e.add(f.ctx(), l, &d)
	require.NotNil(t, mine, o)
	_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: l.Token}})
	require.NoError(t, err)
	o, free := e.clearTheWay(f.ctx(), Request{Path: "/a", Mode: Exclusive, Depth: Zero}, mine, &d)
	assert.False(t, free)
	assert.NoError(t, errors.Join(o.err, o.fault))
	mine.again = true
	_, again := e.finish(f.ctx(), mine)
	assert.True(t, again)
	all, err := tree.Locks(f.ctx())
	require.NoError(t, err)
	assert.Empty(t, all)
}

// many inserts locks in one bulk.
func (f *mongoFixture) many(n int, lock func(i int) Lock) {
	f.t.Helper()
	now := f.serverTime()
	var batch []any
	for i := range n {
		l := lock(i)
		l.Since = now.Add(-time.Second)
		r := record{Lock: l, until: now.Add(time.Hour), rev: bson.NewObjectID()}
		batch = append(batch, append(r.encoded("files"), bson.E{Key: "_id", Value: newToken()}, bson.E{Key: fieldAt, Value: now}))
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
	assert.Equal(t, maxListed, c.Len())
	assert.InDelta(t, 1500, c.More, 5)
	assert.ErrorContains(t, err, "more")
}

// The word may be among the documents that a look did not read.
func TestALookThatIsCutOffKnowsTheWord(t *testing.T) {
	f := newMongo(t)
	f.many(maxListed+500, func(i int) Lock {
		return Lock{Path: fmt.Sprint("/file", i), Mode: Shared, Depth: Zero, Timeout: time.Hour}
	})
	waiting := f.tree(f.storage()).store.(*mongoTree)
	left, err := waiting.leaveWord(f.ctx(), nil)
	require.NoError(t, err)
	e := f.tree(f.storage()).store.(*mongoTree)
	for _, limit := range []int64{1, 2, maxListed} {
		s, err := e.find(f.ctx(), e.base.W1, e.inTheWay(Request{Path: "/", Mode: Exclusive, Depth: Infinity}), limit)
		require.NoError(t, err)
		assert.True(t, s.full)
		assert.Equal(t, left, s.word, "of %d", limit)
	}
}

// A waiter is not kept for the sake of its list, and is told that this is not complete.
func TestTheRefusalOfAWaiterCountsTheLocksInDoubtThatItDoesNotList(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	e := tree.store.(*mongoTree)
	_, err := tree.Lock(f.ctx(), shared("/a"))
	require.NoError(t, err)
	time.Sleep(doubtMost) // real: until it is no longer in doubt
	_, err = e.leaveWord(f.ctx(), nil)
	require.NoError(t, err)
	l := exclusiveLock("/a/b")
	l.Mode = Shared
	f.put(l, f.serverTime().Add(time.Minute), f.serverTime().Add(time.Hour))
	r := exclusively("/a")
	r.Mode = Exclusive
	l = exclusiveLock("/a")
	l.Token = newToken()
	o := e.lock(f.ctx(), r, l, newWaiter())
	require.NoError(t, o.fault)
	var c *ConflictError
	require.ErrorAs(t, o.err, &c)
	assert.Equal(t, 1, c.Len())
	assert.Equal(t, 1, c.More)
	_, err = tree.Lock(f.ctx(), r)
	require.ErrorAs(t, err, &c)
	assert.Equal(t, 2, c.Len(), "a request that does not wait is answered later")
	assert.Zero(t, c.More)
}

func TestARequestReadsOnlyWhatIsInItsWay(t *testing.T) {
	f := newMongo(t)
	f.many(3000, func(i int) Lock {
		return Lock{Path: fmt.Sprintf("/dir%d/file%d", i%50, i), Mode: Exclusive, Depth: Infinity, Timeout: time.Hour}
	})
	f.many(1000, func(int) Lock { return Lock{Path: "/dir1", Mode: Shared, Depth: Zero, Timeout: time.Hour} })
	m := f.storage()
	tree := f.tree(m)
	e := tree.store.(*mongoTree)
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
		s, err := e.find(f.ctx(), m.base.W1, e.inTheWay(c.r), 0)
		require.NoError(t, err)
		assert.Len(t, s.records, c.want, what)
	}
	l, err := tree.Lock(f.ctx(), Request{Path: "/dir1", Mode: Shared, Depth: Zero})
	require.NoError(t, err, "one more of a thousand that share a path")
	require.NoError(t, tree.Release(f.ctx(), l.Token))
}

func TestPathsAsDeepAsTheyCanBe(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	deep := strings.Repeat("/x", maxPath/2)
	l, err := tree.Lock(f.ctx(), Request{Path: deep})
	require.NoError(t, err)
	_, err = tree.Lock(f.ctx(), exclusively("/x/x"))
	require.ErrorIs(t, err, ErrConflict)
	assert.ErrorIs(t, tree.Confirm(f.ctx(), nil, Delete("/x")), ErrLocked)
	require.NoError(t, tree.Release(f.ctx(), l.Token))
	above, err := tree.Lock(f.ctx(), exclusively("/x"))
	require.NoError(t, err)
	_, err = tree.Lock(f.ctx(), Request{Path: deep, Mode: Shared})
	assert.ErrorIs(t, err, ErrConflict)
	assert.NoError(t, tree.Release(f.ctx(), above.Token))
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
	r.Timeouts = []time.Duration{min(pace.Of(2*time.Second), 8*time.Second)}
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

// A lock that will not be used is removed, and removing it again is settled too.
func TestTakingBackALockRemovesItAndIsSettled(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	granted, err := tree.Lock(f.ctx(), exclusively("/granted"))
	require.NoError(t, err)
	for _, token := range []string{granted.Token, "urn:uuid:never"} {
		settled, err := tree.store.takeBack(f.ctx(), token)
		require.NoError(t, err)
		assert.True(t, settled)
	}
	assert.Zero(t, f.count(bson.D{}))
}

// Both hold through a router too, which is in front of a set.
func TestTheLookReadsCommittedLocksAndItsOwn(t *testing.T) {
	f := newMongo(t)
	m := f.tapped()
	tree := f.tree(m)
	_, err := tree.Lock(f.ctx(), exclusively("/warm"))
	require.NoError(t, err)
	for _, r := range []Request{{Path: "/a", Mode: Exclusive}, {Path: "/b", Depth: Infinity}, {Path: "/c", Mode: Shared}, {Path: "/d", Mode: Shared, Depth: Infinity}} {
		f.tap.Take()
		l, err := tree.Lock(f.ctx(), r)
		require.NoError(t, err)
		sent := f.tap.Take()
		require.Len(t, sent, 2)
		look := sent[1]
		cursor, err := f.coll.Find(f.ctx(), look.Lookup("filter").Document())
		require.NoError(t, err)
		var seen []bson.Raw
		require.NoError(t, cursor.All(f.ctx(), &seen))
		require.Len(t, seen, 1, "it has to see its own lock, and nothing else: %v", r)
		assert.Equal(t, l.Token, seen[0].Lookup("_id").StringValue())
		level, _ := look.Lookup("readConcern", "level").StringValueOK()
		if m.base.Kind().Set {
			assert.Equal(t, "majority", level)
		} else {
			assert.NotEqual(t, "majority", level, "there is one member, and it may not know of majorities")
		}
		assert.Equal(t, "majority", sent[0].Lookup("writeConcern", "w").StringValue())
	}
}

func TestAThousandLocksOfOneOwnerOnOnePathOnMongo(t *testing.T) {
	f := newMongo(t)
	owner := []byte("one")
	f.many(1000, func(int) Lock {
		return Lock{Path: "/a", Mode: Shared, Depth: Infinity, Timeout: time.Hour, Owner: owner}
	})
	tree := f.tree(f.storage())
	r := Request{Path: "/a", Mode: Shared, Depth: Infinity, Owner: owner}
	last, err := tree.Lock(f.ctx(), r)
	require.NoError(t, err)
	around, err := tree.Affecting(f.ctx(), "/a", Zero)
	require.NoError(t, err)
	assert.Len(t, around.Same, 1001)
	time.Sleep(doubtMost) // real: until the last lock is no longer in doubt
	r.Mode = Exclusive
	_, err = tree.Lock(f.ctx(), r)
	var c *ConflictError
	require.ErrorAs(t, err, &c, "a lock conflicts with those of its own owner too")
	assert.Equal(t, maxListed, c.Len())
	assert.Positive(t, c.More)
	require.NoError(t, tree.Release(f.ctx(), last.Token))
	assert.EqualValues(t, 1000, f.count(bson.D{{Key: fieldPath, Value: "/a"}}), "one of them, and no other")
}

// Somebody wrote it by hand. As a time.Duration each would be half a millisecond.
func TestATTLThatNoDurationHoldsIsNotShort(t *testing.T) {
	for ms, foreign := range map[int64]bool{18_446_744_073_710: false, -18_446_744_073_709: true} {
		r := record{Lock: exclusiveLock("/a"), until: time.Now(), rev: bson.NewObjectID()}
		r.Token = newToken()
		doc := append(r.encoded("files"), bson.E{Key: "_id", Value: r.Token})
		for i := range doc {
			if doc[i].Key == fieldTTL {
				doc[i].Value = ms
			}
		}
		raw, err := bson.Marshal(doc)
		require.NoError(t, err)
		r, err = readRecord(raw)
		assert.Equal(t, foreign, errors.Is(err, ErrForeign), "%v", err)
		assert.True(t, foreign || r.ttl == MaxTimeout, "%v", r.ttl)
	}
}
