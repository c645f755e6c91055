package pathlock

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// A mongoFixture is a collection of its own on the server of the tests.
type mongoFixture struct {
	t    testing.TB
	coll *mongo.Collection
	tap  testserver.Tap

	shape atomic.Int32 // of the next stranger
}

func newMongo(t testing.TB) *mongoFixture {
	t.Helper()
	testserver.URI(t, "atomic") // compare-and-swap is all that is needed
	f := &mongoFixture{t: t}
	f.coll = f.connect().Database("mongolock_test").Collection("paths_" + rand.Text()[:10])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = f.coll.Drop(ctx)
		_ = f.coll.Database().Collection(f.coll.Name() + ".wake").Drop(ctx)
	})
	return f
}

func (f *mongoFixture) connect(opts ...func(*options.ClientOptions)) *mongo.Client {
	f.t.Helper()
	return testserver.Connect(f.t, testserver.URI(f.t), opts...)
}

// storage is the storage of one more process.
func (f *mongoFixture) storage(opts ...func(*options.ClientOptions)) *Mongo {
	f.t.Helper()
	return f.on(f.connect(opts...))
}

// tapped is a storage whose commands are recorded.
func (f *mongoFixture) tapped(opts ...MongoOption) *Mongo { return f.on(f.connect(f.tap.On), opts...) }

func (f *mongoFixture) on(client *mongo.Client, opts ...MongoOption) *Mongo {
	f.t.Helper()
	m, err := OnMongo(client.Database(f.coll.Database().Name()).Collection(f.coll.Name()), opts...)
	require.NoError(f.t, err)
	return m
}

// took returns the names of the commands since the last call.
func (f *mongoFixture) took() string { return strings.Join(f.tap.TakeNames(), " ") }

func (f *mongoFixture) tree(m *Mongo) *Tree {
	f.t.Helper()
	tree, err := New(m, "files", WithLimits(Limits{Infinite: true}))
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = tree.Close() })
	return tree
}

func (f *mongoFixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), pace.Of(10*time.Second))
	f.t.Cleanup(cancel)
	return ctx
}

func exclusively(path string) Request {
	return Request{Path: path, Depth: Infinity, Timeouts: []time.Duration{time.Minute}}
}

func TestEachRequestSendsTheCommandsThatThePageSays(t *testing.T) {
	testserver.Need(t, "!router")
	f := newMongo(t)
	tree := f.tree(f.tapped())
	expect := func(want, what string) {
		t.Helper()
		assert.Equal(t, want, f.took(), what)
	}
	_, err := tree.Lock(f.ctx(), exclusively("/first"))
	require.NoError(t, err)
	expect("createIndexes hello update find", "the first lock of a process")
	l, err := tree.Lock(f.ctx(), exclusively("/a"))
	require.NoError(t, err)
	expect("update find", "a lock: add, look")
	time.Sleep(doubtMost) // real: until the first lock is no longer in doubt
	_, err = tree.Lock(f.ctx(), exclusively("/a"))
	require.ErrorIs(t, err, ErrConflict)
	expect("update find findAndModify", "a conflict: add, look, withdraw")
	_, err = tree.Lock(f.ctx(), exclusively("/a"))
	require.ErrorIs(t, err, ErrConflict)
	expect("find", "a conflict soon after another: a look")
	_, err = tree.Refresh(f.ctx(), l.Token, time.Hour)
	require.NoError(t, err)
	expect("findAndModify", "a refresh with a timeout")
	_, err = tree.Refresh(f.ctx(), l.Token)
	require.NoError(t, err)
	expect("find findAndModify", "a refresh with the lock's own timeout, which has to be read")
	require.NoError(t, tree.Confirm(f.ctx(), []string{l.Token}, Modify("/a/x"), Delete("/a"), AddTo("/")))
	expect("find", "a confirmation")
	_, err = tree.Locks(f.ctx())
	require.NoError(t, err)
	_, err = tree.Affecting(f.ctx(), "/", Infinity)
	require.NoError(t, err)
	expect("find"+" find", "two looks")
	require.NoError(t, tree.Release(f.ctx(), l.Token))
	expect("findAndModify", "a release")
	require.ErrorIs(t, tree.Release(f.ctx(), l.Token), ErrUnknownToken)
	expect("findAndModify find", "a release of nothing")
}

func TestWithoutIndexOnlyEnsureIndexMakesOne(t *testing.T) {
	f := newMongo(t)
	m := f.tapped(WithoutIndex())
	_, err := f.tree(m).Lock(f.ctx(), exclusively("/a"))
	require.NoError(t, err)
	assert.NotContains(t, f.took(), "createIndexes")
	require.NoError(t, m.EnsureIndex(f.ctx()))
	assert.Equal(t, "createIndexes", f.took())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorContains(t, m.EnsureIndex(ended), "pathlock: EnsureIndex: ")
}

// A process that has not read the word for a second reads it after a release.
func TestAReleaseIsToldToOtherProcessesOnlyWhenACallerWaits(t *testing.T) {
	f := newMongo(t)
	for _, waits := range []bool{false, true} {
		tree := f.tree(f.tapped())
		l, err := tree.Lock(f.ctx(), exclusively("/a"))
		require.NoError(t, err)
		time.Sleep(wordFresh + 50*time.Millisecond) // what is known of the word gets old
		if waits {
			_, err := f.tree(f.storage()).store.(*mongoTree).leaveWord(f.ctx(), nil)
			require.NoError(t, err)
		}
		f.took()
		require.NoError(t, tree.Release(f.ctx(), l.Token))
		require.NoError(t, tree.Close()) // which waits for what it does in the background
		names := f.took()
		require.True(t, strings.HasPrefix(names, "findAndModify find"), names)
		assert.Equal(t, waits, names != "findAndModify find", "%v: %s", waits, names)
	}
}

var strangers = []bson.D{
	{{Key: "name", Value: "somebody's"}},
	{{Key: fieldRev, Value: bson.NewObjectID()}},
	{{Key: fieldVersion, Value: 4}, {Key: fieldTree, Value: "files"}},
	{{Key: fieldVersion, Value: "3"}, {Key: fieldRev, Value: bson.NewObjectID()}},
	{{Key: fieldVersion, Value: 3}},
	{{Key: fieldVersion, Value: 3}, {Key: fieldTree, Value: "another"}},
	{{Key: fieldVersion, Value: 2}, {Key: fieldTree, Value: "files"}, {Key: "on", Value: int64(4)}}, // an older version
	{{Key: "mongolock", Value: 1}, {Key: "expireAt", Value: time.UnixMilli(1)}},                     // a lease that ran out
}

// Foreign puts a document of another program in a tree's place.
func (f *mongoFixture) Foreign(tree string) (intact func() error, err error) {
	shape := strangers[int(f.shape.Add(1)-1)%len(strangers)]
	id := bson.D{{Key: "_id", Value: tree}}
	if _, err := f.coll.InsertOne(context.Background(), append(slices.Clone(id), shape...)); err != nil {
		return nil, err
	}
	before, err := f.coll.FindOne(context.Background(), id).Raw()
	return func() error {
		after, err := f.coll.FindOne(context.Background(), id).Raw()
		if err == nil && !bytes.Equal(before, after) {
			err = fmt.Errorf("it was %v and is %v", before, after)
		}
		return err
	}, err
}

func (f *mongoFixture) Open(testing.TB) Storage { return f.storage() }

// Where names the collection, for another process.
func (f *mongoFixture) Where() (database, collection string) {
	return f.coll.Database().Name(), f.coll.Name()
}

// NewPlaceOnMongo is for the tests that cannot be in this package.
func NewPlaceOnMongo(t testing.TB) interface {
	Open(testing.TB) Storage
	Foreign(string) (func() error, error)
	Where() (database, collection string)
} {
	return newMongo(t)
}

// The look between the insert and the grant reads one primary. Locks that stand in each
// other's way may be on two shards, whatever the key.
func TestATreeInAShardedCollectionIsRefused(t *testing.T) {
	f := newMongo(t)
	line := &testserver.Line{}
	line.Set(func(command string, c bson.Raw) testserver.Fate {
		switch db, _ := c.Lookup("$db").StringValueOK(); {
		case command == "hello" && db != "admin":
			return testserver.Fate{Rewrite: func(r bson.Raw) bson.D {
				return testserver.Edit(r, []string{"setName", "electionId", "msg"}, bson.E{Key: "msg", Value: "isdbgrid"})
			}}
		case command == "collStats":
			return testserver.Fate{Instead: bson.D{{Key: "ok", Value: 1}, {Key: "sharded", Value: true}}}
		}
		return testserver.Fate{}
	})
	_, err := f.tree(f.storage(line.Through)).Lock(f.ctx(), exclusively("/a"))
	assert.ErrorContains(t, err, "is sharded: these locks need one that is not")
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{})
	require.NoError(t, err)
	assert.Zero(t, n, "documents of a refused lock")
}

func TestALockOfANewerVersionIsNeverOverlooked(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	l, err := tree.Lock(f.ctx(), exclusively("/a"))
	require.NoError(t, err)
	_, err = f.coll.UpdateByID(f.ctx(), l.Token, bson.D{{Key: "$set", Value: bson.D{{Key: fieldVersion, Value: mongoVersion + 1}}}})
	require.NoError(t, err)
	_, err = tree.Lock(f.ctx(), exclusively("/a/b"))
	assert.ErrorIs(t, err, ErrForeign)
	b, err := tree.Lock(f.ctx(), exclusively("/b"))
	assert.NoError(t, err, "it is not in the way of this one")
	_, err = f.coll.UpdateByID(f.ctx(), b.Token, bson.D{{Key: "$unset", Value: bson.D{{Key: fieldTree, Value: ""}}}})
	require.NoError(t, err)
	assert.ErrorIs(t, tree.Release(f.ctx(), b.Token), ErrForeign, "by hand; a release that saw it, and did not find it, would look on and on")
}

// The server's clock judges. A process whose own clock is an hour ahead neither takes
// what is held, nor is refused what is free.
func TestClocksAnHourApartChangeNothing(t *testing.T) {
	f := newMongo(t)
	near := f.tree(f.storage())
	start := time.Now()
	far, err := onMongo(f.storage().base.W1, func() server.Moment { return server.Moment(time.Hour + time.Since(start)) })
	require.NoError(t, err)
	tree := f.tree(far)
	_, err = tree.Lock(f.ctx(), exclusively("/warm"))
	require.NoError(t, err)
	r := exclusively("/a")
	r.Timeouts = []time.Duration{pace.Of(500 * time.Millisecond)} // a Lock that takes longer is granted nothing
	sent := time.Now()
	l, err := near.Lock(f.ctx(), r)
	require.NoError(t, err)
	if _, err = tree.Lock(f.ctx(), r); time.Since(sent) < l.Left {
		assert.ErrorIs(t, err, ErrConflict)
	}
	_, err = tree.LockWait(f.ctx(), r) // ten seconds are enough for it, and an hour is not
	assert.NoError(t, err)
	assert.Greater(t, time.Since(sent), l.Left, "granted before the other's time was over")
}

// A caller that gave a refresh up and asked again relies on the second answer.
func TestARefreshOnMongoWhoseCallerHasLeftDoesNotUndoALaterOne(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	l, err := tree.Lock(f.ctx(), exclusively("/a"))
	require.NoError(t, err)
	line, goOn, reached := &testserver.Line{}, make(chan struct{}), make(chan struct{})
	slow := f.tree(f.storage(line.Through))
	_, err = slow.Locks(f.ctx()) // it is connected, and knows the server
	require.NoError(t, err)
	line.Set(func(command string, _ bson.Raw) testserver.Fate {
		if command != "find" {
			return testserver.Fate{}
		}
		return testserver.Fate{Before: func() { close(reached); <-goOn }}
	})
	ctx, cancel := context.WithCancel(f.ctx())
	given := make(chan error)
	go func() {
		_, err := slow.Refresh(ctx, l.Token, 5*time.Second) // so brief that it looks first
		given <- err
	}()
	<-reached
	line.Set(nil)
	cancel()
	require.ErrorIs(t, <-given, context.Canceled)
	fresh, err := tree.Refresh(f.ctx(), l.Token, time.Hour)
	require.NoError(t, err)
	close(goOn)
	require.NoError(t, slow.Close()) // which waits for the first
	all, err := tree.Locks(f.ctx())
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, fresh.ExpireAt, all[0].ExpireAt)
}
