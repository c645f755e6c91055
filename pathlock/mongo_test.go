package pathlock

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
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

	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/testserver"
)

// A bench is a collection of its own on the server of the tests.
type bench struct {
	t    testing.TB
	coll *mongo.Collection
	tap  testserver.Tap

	shape atomic.Int32 // of the next stranger
}

func newBench(t testing.TB) *bench {
	t.Helper()
	testserver.URI(t, "atomic") // compare-and-swap is all there is
	b := &bench{t: t}
	b.coll = b.connect().Database("mongolock_test").Collection("paths_" + rand.Text()[:10])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = b.coll.Drop(ctx)
		_ = b.coll.Database().Collection(b.coll.Name() + ".wake").Drop(ctx)
	})
	return b
}

func (b *bench) connect(opts ...func(*options.ClientOptions)) *mongo.Client {
	b.t.Helper()
	return testserver.Connect(b.t, testserver.URI(b.t), opts...)
}

// storage is that of one more process.
func (b *bench) storage(opts ...func(*options.ClientOptions)) *Mongo {
	b.t.Helper()
	coll := b.connect(opts...).Database(b.coll.Database().Name()).Collection(b.coll.Name())
	m, err := OnMongo(coll)
	require.NoError(b.t, err)
	return m
}

// tapped is one whose commands are kept.
func (b *bench) tapped() *Mongo {
	return b.storage(b.tap.On)
}

// took names the commands sent since the last call.
func (b *bench) took() string { return strings.Join(b.tap.TakeNames(), " ") }

func (b *bench) tree(m *Mongo) *Tree {
	b.t.Helper()
	tree, err := New(m, "files", WithLimits(Limits{Infinite: true}))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tree.Close() })
	return tree
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	b.t.Cleanup(cancel)
	return ctx
}

func exclusively(path string) Request {
	return Request{Path: path, Mode: Exclusive, Depth: Infinity, Timeouts: []time.Duration{time.Minute}}
}

func TestEveryRequestIsOneReadAndAtMostOneWrite(t *testing.T) {
	b := newBench(t)
	tree := b.tree(b.tapped())
	expect := func(what, want string) {
		t.Helper()
		if got := b.took(); got != want {
			t.Errorf("%s sent %q, not %q", what, got, want)
		}
	}
	l, err := tree.Lock(b.ctx(), exclusively("/a"))
	require.NoError(t, err)
	expect("the first lock of all, which has to ask for the time,", "find hello findAndModify")
	other, err := tree.Lock(b.ctx(), exclusively("/b"))
	require.NoError(t, err)
	expect("a lock", "find findAndModify")
	_, err = tree.Lock(b.ctx(), exclusively("/a"))
	require.ErrorIs(t, err, ErrConflict)
	expect("a conflict", "find")
	_, err = tree.Refresh(b.ctx(), l.Token)
	require.NoError(t, err)
	expect("a refresh", "find findAndModify")
	require.NoError(t, tree.Confirm(b.ctx(), []string{l.Token}, Modify("/a/x")))
	expect("a confirmation", "find")
	_, err = tree.Locks(b.ctx())
	require.NoError(t, err)
	_, err = tree.Affected(b.ctx(), "/", WithChildren(), WithParents())
	require.NoError(t, err)
	expect("two looks", "find"+" find")
	require.NoError(t, tree.Release(b.ctx(), "/a", l.Token))
	expect("a release", "find findAndModify")
	require.ErrorIs(t, tree.Release(b.ctx(), "/a", l.Token), ErrUnknownToken)
	expect("a release of nothing", "find")

	// Another process writes between two requests: that is no race.
	require.NoError(t, b.tree(b.storage()).Release(b.ctx(), "/b", other.Token))
	_, err = tree.Lock(b.ctx(), exclusively("/b"))
	require.NoError(t, err)
	expect("a lock after another process's", "find findAndModify")
}

// A race is another process's write between our read and our write.
func TestOnlyATrueRaceCostsAReadAndAWriteMore(t *testing.T) {
	b := newBench(t)
	m, rival := b.tapped(), b.tree(b.storage())
	for _, path := range []string{"/warm", "/first"} {
		_, err := rival.Lock(b.ctx(), exclusively(path))
		require.NoError(t, err)
	}
	_, err := b.tree(m).Lock(b.ctx(), exclusively("/mine"))
	require.NoError(t, err)
	b.took()
	asked := 0
	_, err = m.Update(b.ctx(), "files", func(*Document, Clock) (Edit, error) {
		if asked++; asked == 1 {
			if _, err := rival.Lock(b.ctx(), exclusively("/between")); err != nil {
				return Edit{}, err
			}
		}
		return Edit{Touch: true}, nil
	})
	require.NoError(t, err)
	if got, want := b.took(), "find findAndModify find findAndModify"; got != want || asked != 2 {
		t.Errorf("sent %q and asked %d times, not %q", got, asked, want)
	}
}

// The control: without the revision in its filter the write between goes unseen, and
// two processes hold one path.
func TestControlWithoutTheRevisionTwoAreGranted(t *testing.T) {
	for _, blind := range []bool{false, true} {
		b := newBench(t)
		m, rival := b.storage(), b.tree(b.storage())
		m.blind = blind
		_, err := rival.Lock(b.ctx(), exclusively("/first"))
		require.NoError(t, err)
		raced := false
		between := between{m, func() {
			if raced {
				return
			}
			raced = true
			_, err := rival.Lock(b.ctx(), exclusively("/a"))
			assert.NoError(t, err)
		}}
		tree, err := New(between, "files")
		require.NoError(t, err)
		_, err = tree.Lock(b.ctx(), exclusively("/a"))
		if granted := err == nil; granted != blind {
			t.Errorf("blind %v: %v", blind, err)
		}
		_ = tree.Close()
	}
}

// between does something after each decision and before its write.
type between struct {
	Storage
	do func()
}

func (s between) Update(ctx context.Context, tree string, change func(*Document, Clock) (Edit, error)) (time.Time, error) {
	return s.Storage.Update(ctx, tree, func(doc *Document, now Clock) (Edit, error) {
		e, err := change(doc, now)
		if !e.Empty() {
			s.do()
		}
		return e, err
	})
}

var strangers = []bson.D{
	{{Key: "name", Value: "somebody's"}},
	{{Key: fieldRev, Value: bson.NewObjectID()}, {Key: fieldLocks, Value: bson.D{}}},
	{{Key: fieldMark, Value: 2}, {Key: fieldRev, Value: bson.NewObjectID()}},
	{{Key: fieldMark, Value: "1"}, {Key: fieldRev, Value: bson.NewObjectID()}},
	{{Key: fieldMark, Value: 1}},
	{{Key: fieldMark, Value: 1}, {Key: fieldRev, Value: bson.NewObjectID()}, {Key: fieldLocks, Value: "none"}},
	{{Key: fieldMark, Value: 1}, {Key: fieldRev, Value: bson.NewObjectID()}, {Key: fieldLocks, Value: bson.D{{Key: "x", Value: bson.D{{Key: fieldPath, Value: "a"}}}}}},
	{{Key: "mongolock", Value: 1}, {Key: "expireAt", Value: time.UnixMilli(1)}}, // a lock's, run out
}

// Foreign puts a document of somebody else's in a tree's place.
func (b *bench) Foreign(tree string) (intact func() error, err error) {
	shape := strangers[int(b.shape.Add(1)-1)%len(strangers)]
	id := bson.D{{Key: "_id", Value: tree}}
	if _, err := b.coll.InsertOne(context.Background(), append(slices.Clone(id), shape...)); err != nil {
		return nil, err
	}
	before, err := b.coll.FindOne(context.Background(), id).Raw()
	return func() error {
		after, err := b.coll.FindOne(context.Background(), id).Raw()
		if err == nil && !bytes.Equal(before, after) {
			err = fmt.Errorf("it was %v and is %v", before, after)
		}
		return err
	}, err
}

func (b *bench) Open(testing.TB) Storage { return b.storage() }

// Where is the collection, for another process.
func (b *bench) Where() (database, collection string) { return b.coll.Database().Name(), b.coll.Name() }

func (b *bench) Limited() {}

// NewPlaceOnMongo is for the tests that cannot be in this package.
func NewPlaceOnMongo(t testing.TB) interface {
	Open(testing.TB) Storage
	Foreign(string) (func() error, error)
	Limited()
	Where() (database, collection string)
} {
	return newBench(t)
}

// A write whose answer is lost is taken back, though it is applied later.
func TestALockOfUnknownOutcomeIsTakenBack(t *testing.T) {
	b := newBench(t)
	m := b.storage()
	fault := errors.New("the answer was lost")
	lost := &losing{Storage: m, err: fault}
	tree, err := New(lost, "files")
	require.NoError(t, err)
	lost.next.Store(1)
	_, err = tree.Lock(b.ctx(), exclusively("/a"))
	if !errors.Is(err, fault) || !errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("answered %v", err)
	}
	if err := tree.Close(); err != nil { // waits for the clean-up
		t.Fatal(err)
	}
	if all, err := b.tree(b.storage()).Locks(b.ctx()); err != nil || len(all) != 0 {
		t.Errorf("left behind: %+v, %v", all, err)
	}
}

// The server's clock judges: a process whose own clock is an hour off neither takes
// what is held nor is refused what is free.
func TestClocksAnHourApartChangeNothing(t *testing.T) {
	b := newBench(t)
	near := b.tree(b.storage())
	start := time.Now()
	far, err := onMongo(b.storage().base.Soft, func() mongoclock.Moment { return mongoclock.Moment(time.Hour + time.Since(start)) })
	require.NoError(t, err)
	tree := b.tree(far)
	r := exclusively("/a")
	r.Timeouts = []time.Duration{500 * time.Millisecond}
	sent := time.Now()
	l, err := near.Lock(b.ctx(), r)
	require.NoError(t, err)
	if _, err := tree.Lock(b.ctx(), r); !errors.Is(err, ErrConflict) && time.Since(sent) < l.Left {
		t.Errorf("%v", err)
	}
	time.Sleep(l.Left)
	if _, err := tree.LockWait(b.ctx(), r); err != nil { // seconds are enough, and an hour is not
		t.Errorf("%v", err)
	}
}

// Blind takes the revision out of the filter: the fault that the tests must see.
func (m *Mongo) Blind() { m.blind = true }
