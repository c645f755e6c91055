package system

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/store"
)

const (
	childBusy = 3 * time.Second        // how long children work
	childHold = 400 * time.Millisecond // of a reader in a stream

	presenceSuffix = ".presence" // the collection where children say that they are inside
)

// presence changes the count of one kind of holders that are inside, and returns all counts.
func presence(coll *mongo.Collection, key, kind string, by int) (inside struct{ Readers, Writers, Permits int }) {
	err := coll.Database().Collection(coll.Name()+presenceSuffix).FindOneAndUpdate(context.Background(),
		bson.D{{Key: "_id", Value: key}}, bson.D{{Key: "$inc", Value: bson.D{{Key: kind, Value: by}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&inside)
	if err != nil {
		panic(err)
	}
	return inside
}

// comeAndGo takes a key again and again, in n goroutines. It says what it saw there that must
// not be, and in the end how often it held the key.
func comeAndGo(key, kind string, n int, opts ...mongolock.AcquireOption) {
	c, coll := childClient()
	var mu sync.Mutex // protects served
	served := 0
	var wg sync.WaitGroup
	for end := time.Now().Add(childBusy); n > 0; n-- {
		wg.Go(func() {
			for time.Now().Before(end) {
				l, err := c.Acquire(context.Background(), key, opts...)
				if err != nil {
					fmt.Println("wrong:", err)
					return
				}
				in := presence(coll, key, kind, 1)
				if in.Writers > 1 || in.Writers == 1 && in.Readers+in.Permits > 0 || in.Permits > 3 {
					fmt.Printf("wrong: inside %+v\n", in)
				}
				presence(coll, key, kind, -1)
				if err := l.Release(); err != nil {
					fmt.Println("wrong:", err)
				}
				mu.Lock()
				served++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	_ = c.Close()
	fmt.Println("served", served)
}

// streamUntilKilled shares the key without a gap, in two goroutines.
func streamUntilKilled() {
	c, _ := childClient(mongolock.TTL(childTTL()))
	fmt.Println("ready")
	for i := range 2 {
		go func() {
			time.Sleep(time.Duration(i) * childHold / 2) // real: the two take turns
			for {
				if l, err := c.Acquire(context.Background(), "k", mongolock.Shared()); err == nil {
					time.Sleep(childHold) // real: one of the stream is in
					_ = l.Release()
				}
			}
		}()
	}
	select {}
}

func acquireAllAgain(keys ...string) {
	c, coll := childClient()
	served := 0
	for end := time.Now().Add(childBusy); time.Now().Before(end); served++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		all, err := mongolock.AcquireAll(ctx, c, keys)
		cancel()
		if err != nil {
			fmt.Println("wrong:", err)
			break
		}
		if in := presence(coll, "all", "writers", 1); in.Writers != 1 {
			fmt.Printf("wrong: inside %+v\n", in)
		}
		presence(coll, "all", "writers", -1)
		if err := errors.Join(all.Err(), all.Release()); err != nil {
			fmt.Println("wrong:", err)
		}
	}
	_ = c.Close()
	fmt.Println("served", served)
}

// serve runs children, and fails if one of them saw something wrong or got nothing done. The
// counts are created before: of several upserts at once one may fail.
func (f *fixture) serve(kinds ...string) {
	f.t.Helper()
	counts := f.coll.Database().Collection(f.coll.Name() + presenceSuffix)
	_, err := counts.InsertMany(f.ctx(), []bson.D{{{Key: "_id", Value: "k"}}, {{Key: "_id", Value: "p"}}, {{Key: "_id", Value: "all"}}})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = counts.Drop(context.Background()) })
	var children []*childProcess
	for _, kind := range kinds {
		children = append(children, f.child(kind))
	}
	for i, c := range children {
		served := 0
		for served == 0 {
			line := c.says()
			if _, err := fmt.Sscanf(line, "served %d", &served); err != nil {
				f.t.Fatalf("%s: %s", kinds[i], line)
			} else if served == 0 {
				f.t.Fatalf("%s: nothing done", kinds[i])
			}
		}
		f.t.Logf("%s: in %d times", kinds[i], served)
	}
}

func TestReadersAndWritersOfSeveralProcessesAreNeverInsideTogether(t *testing.T) {
	t.Parallel()
	newFixture(t).serve("readers", "readers", "writers", "writers")
}

func TestPermitsOfSeveralProcessesAreNoMoreThanTheirLimit(t *testing.T) {
	t.Parallel()
	newFixture(t).serve("permits", "permits", "permits")
}

func TestAcquireAllInOppositeOrdersDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("upward", "downward", "downward")
	for _, key := range []string{"a", "b", "c"} {
		f.mustBeAbsent(key)
	}
}

func TestAStreamOfReadersOfOtherProcessesKeepsNoWriterOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var stream []*childProcess
	for range 3 {
		child := f.child("stream")
		require.Equal(t, "ready", child.says())
		stream = append(stream, child)
	}
	c := f.client()
	for range 5 {
		f.until(time.Now().Add(5*time.Second), "readers are in", func() bool { return len(f.holders("k")) > 1 })
		time.Sleep(childHold) // real: one of the stream is in
		start := time.Now()
		l := f.acquire(c, "k")
		f.within(childHold+slack+pollPause, time.Since(start), "in")
		f.release(l)
	}
	f.die(stream...)
}

// die kills children and waits until what they held has run out: one TTL after the server has
// executed their last renewals, which may be in its sockets yet. It must have run out for a while:
// a client whose first answer from the server was slow, as that of the check at the end may be,
// takes the server's clock to be earlier by that time.
func (f *fixture) die(children ...*childProcess) {
	f.t.Helper()
	for _, c := range children {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	c := f.client()
	f.until(time.Now().Add(childTTL()+2*slack), "the end of what the dead held", func() bool {
		s, err := c.Inspect(f.ctx(), "k")
		s.Now = s.Now.Add(-slack)
		return err == nil && hasRunOut(&s)
	})
}

func TestAKilledSharerBlocksOthersForOneTTL(t *testing.T) {
	for kind, opts := range map[string][]mongolock.AcquireOption{"reader": nil, "permit": {mongolock.OneOf(2)}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			child, stays := f.child(kind), f.child(kind)
			var token int64
			for _, c := range []*childProcess{child, stays} {
				_, err := fmt.Sscanf(c.says(), "holds %d", &token)
				require.NoError(t, err)
			}
			wait := f.inBackground(f.ctx(), f.client(), "k", opts...)
			time.Sleep(3 * childTTL() / 2) // they renew
			assert.Empty(t, wait, "granted while they live")
			kill := []*childProcess{child}
			if kind == "reader" {
				kill = append(kill, stays)
			}
			for _, c := range kill {
				require.NoError(t, c.Process.Kill())
				_ = c.Wait()
			}
			killed := time.Now()
			a := f.granted(wait)
			f.within(childTTL()+slack+pollPause, a.when.Sub(killed), "free")
			if kind == "reader" && a.lease.Token() <= token {
				t.Errorf("token %d after %d", a.lease.Token(), token)
			}
			if kind == "permit" && len(f.holders("k")) != 2 {
				t.Errorf("the permit of the dead is not given to the next: %d holders", len(f.holders("k")))
			}
			f.release(a.lease)
			if kind == "permit" {
				f.die(stays)
			}
		})
	}
}

// However the last holder leaves, a waiter in another process is woken, and does not find out
// by polling.
func TestAWaiterIsWokenHoweverTheLastSharerLeaves(t *testing.T) {
	for name, leave := range map[string]func(f *fixture, holder *mongolock.Client, l *mongolock.Lease){
		"release":  func(f *fixture, holder *mongolock.Client, l *mongolock.Lease) { f.release(l) },
		"break":    func(f *fixture, holder *mongolock.Client, l *mongolock.Lease) { f.mustBreak(l.Key()) },
		"Close":    func(f *fixture, holder *mongolock.Client, l *mongolock.Lease) { _ = holder.Close() },
		"clean-up": func(f *fixture, holder *mongolock.Client, l *mongolock.Lease) { inside.Undo(l, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			holder, writer := f.client(mongolock.WithMargin(0)), f.client()
			l := f.acquire(holder, "k", mongolock.Shared())
			f.release(f.acquire(holder, "k", mongolock.Shared())) // another comes and goes
			wait := f.inBackground(f.ctx(), writer, "k")
			f.waits(writer, "k")
			f.until(time.Now().Add(5*time.Second), "it listens", func() bool {
				return writer.Stats().Feed == store.FeedLive
			})
			start := time.Now()
			leave(f, holder, l)
			a := f.granted(wait)
			f.within(feedSoon(), a.when.Sub(start), "woken") // unless told, it sleeps for 20 s
			f.release(a.lease)
			_ = l.Release()
		})
	}
}

func (f *fixture) mustBreak(key string) {
	f.t.Helper()
	marked, err := f.client().Break(f.ctx(), key, "the operator's reason", 0)
	require.NoError(f.t, err, "marked %+v", marked)
	require.Len(f.t, marked, 1, "marked")
}

func TestABreakTellsEveryReaderBeforeTheWriterIsGranted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ttl := pace.Of(1500 * time.Millisecond)
	var ends []<-chan time.Time
	var readers []*mongolock.Lease
	for range 3 {
		l := f.acquire(f.client(mongolock.TTL(ttl)), "k", mongolock.Shared())
		readers, ends = append(readers, l), append(ends, endOf(l))
	}
	writer := f.client()
	wait := f.inBackground(f.ctx(), writer, "k")
	f.waits(writer, "k")
	marked, err := f.client().Break(f.ctx(), "k", "the operator's reason", ttl/3+ttl/10+slack+f.busy())
	require.NoError(t, err, "marked %+v", marked)
	require.Len(t, marked, len(readers), "marked")
	a := f.granted(wait)
	for i, l := range readers {
		told := <-ends[i]
		assert.False(t, told.After(a.when), "told %v after the writer was granted", told.Sub(a.when))
		err := l.Err()
		assert.ErrorIs(t, err, mongolock.ErrBroken, "it ended")
		assert.ErrorContains(t, err, "the operator's reason", "it ended")
		assert.Greater(t, a.lease.Token(), l.Token(), "the token rises")
	}
	time.Sleep(ttl / 2) // real: what the break left to do is done, and the writer's lease is not among it
	f.mustHold(a.lease)
	f.release(a.lease)
}

func TestMinHoldOfAReaderKeepsWritersOutAndNoReader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const keep = 800 * time.Millisecond
	begin := time.Now()
	kept := f.acquire(f.client(), "k", mongolock.Shared(), mongolock.MinHold(keep))
	granted := time.Now()
	other := f.acquire(f.client(), "k", mongolock.Shared())
	f.release(kept)
	third := f.acquire(f.client(), "k", mongolock.Shared())
	wait := f.inBackground(f.ctx(), f.client(), "k")
	f.release(third)
	f.release(other)
	a := f.granted(wait)
	assert.GreaterOrEqual(t, a.when.Sub(begin), keep, "from the call to the grant")
	f.within(keep+slack+pollPause, a.when.Sub(granted), "granted")
	f.release(a.lease)
}

func TestAJoinInATransactionIsNoPartOfIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "transactions")
	conn := f.connect(f.uri)
	c := f.clientOn(conn)
	stays := f.acquire(f.client(), "k", mongolock.Shared())
	session, err := conn.StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	ctx := mongo.NewSessionContext(f.ctx(), session)
	l, err := c.Acquire(ctx, "k", mongolock.Shared())
	require.NoError(t, err)
	require.NoError(t, session.AbortTransaction(ctx))
	assert.Len(t, f.holders("k"), 2, "holders after the abort")
	f.release(l)
	f.mustHold(stays)
	f.release(stays)
	f.mustBeAbsent("k")
}
