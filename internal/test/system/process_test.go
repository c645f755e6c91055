package system

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// The variables that make this program a child of a test.
const (
	childVariable      = "MONGOLOCK_TEST_CHILD"
	collectionVariable = "MONGOLOCK_TEST_COLLECTION" // database.collection
	ttlVariable        = "MONGOLOCK_TEST_TTL"
)

// childTTL is the TTL of children. They have it from their parent: one that measured the machine
// for itself might find it busier, or less so.
var childTTL = sync.OnceValue(func() time.Duration {
	if ttl, err := time.ParseDuration(os.Getenv(ttlVariable)); err == nil {
		return ttl
	}
	return pace.Of(3 * time.Second)
})

var childPrograms = map[string]func(){
	"holder": func() { holdUntilKilled() },
	"reader": func() { holdUntilKilled(mongolock.Shared()) },
	"permit": func() { holdUntilKilled(mongolock.OneOf(2)) },

	"readers":  func() { comeAndGo("k", "readers", 4, mongolock.Shared()) },
	"writers":  func() { comeAndGo("k", "writers", 1) },
	"permits":  func() { comeAndGo("p", "permits", 4, mongolock.OneOf(3)) },
	"stream":   streamUntilKilled,
	"worker":   workAsTold,
	"upward":   func() { acquireAllAgain("a", "b", "c") },
	"downward": func() { acquireAllAgain("c", "b", "a") },
}

// holdUntilKilled holds the key until it is killed, or its parent is gone, and says that it
// holds it. Whenever it finds that it was stopped for a while, it says for how long, and
// whether the first look at its lease's context shows the loss.
func holdUntilKilled(opts ...mongolock.AcquireOption) {
	c, _ := childClient(mongolock.TTL(childTTL()))
	l, err := c.Acquire(context.Background(), "k", opts...)
	if err != nil {
		panic(err)
	}
	ctx := l.Context(context.Background())
	last := time.Now() // before it says so: the reader may stop it at once
	fmt.Println("holds", l.Token())
	for ; ; time.Sleep(time.Millisecond) {
		now := time.Now()
		if err := ctx.Err(); now.Sub(last) > childTTL()/4 {
			fmt.Println(now.Sub(last), err != nil && errors.Is(context.Cause(ctx), mongolock.ErrLost))
		}
		last = now
	}
}

// childClient is the client of a child. The child ends with its parent.
func childClient(opts ...mongolock.ClientOption) (*mongolock.Client, *mongo.Collection) {
	conn := childReaches()
	db, name, _ := strings.Cut(os.Getenv(collectionVariable), ".")
	coll := conn.Database(db).Collection(name)
	c, err := mongolock.New(coll, append(opts, mongolock.WithOwner("child"), mongolock.WithoutIndex())...)
	if err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = c.Close() // and with it its feed, see clientOfStore
		os.Exit(0)
	}()
	return c, coll
}

// childReaches connects to the server, as reached does: the time of a child begins when the
// server has answered it.
func childReaches() *mongo.Client {
	for tries := 1; ; tries++ {
		conn, err := mongo.Connect(testserver.Dialling(os.Getenv("MONGODB_URI")))
		if err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), pace.Of(5*time.Second))
		err = conn.Ping(ctx, nil)
		cancel()
		if err == nil {
			return conn
		}
		if tries == 3 {
			panic(err)
		}
		_ = conn.Disconnect(context.Background())
	}
}

// A childProcess is a process of this program.
type childProcess struct {
	*exec.Cmd
	t   testing.TB
	in  io.WriteCloser // it ends when this is closed
	out *bufio.Scanner
}

func (f *fixture) child(what string) *childProcess {
	f.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+what, "MONGODB_URI="+f.uri, ttlVariable+"="+childTTL().String(), collectionVariable+"="+f.coll.Database().Name()+"."+f.coll.Name())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(f.t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, cmd.Start())
	f.t.Cleanup(func() {
		_ = stdin.Close()
		if f.server == ofItsOwn {
			_ = cmd.Process.Kill()
		}
		late := time.AfterFunc(pace.Of(5*time.Second), func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
	})
	stuck := time.AfterFunc(pace.Of(time.Minute), func() { _ = cmd.Process.Kill() }) // after that says fails
	f.t.Cleanup(func() { stuck.Stop() })
	return &childProcess{cmd, f.t, stdin, bufio.NewScanner(stdout)}
}

// says returns the next line of the child's output.
func (c *childProcess) says() string {
	c.t.Helper()
	require.True(c.t, c.out.Scan(), "the child ended without a word")
	return c.out.Text()
}

func TestAHolderThatIsKilledFreesTheKeyWithinItsTTL(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	child := f.child("holder")
	var token int64
	_, err := fmt.Sscanf(child.says(), "holds %d", &token)
	require.NoError(t, err)
	c := f.client()
	_, err = c.TryAcquire(f.ctx(), "k")
	require.ErrorIs(t, err, mongolock.ErrHeld, "the child does not hold it")
	wait := f.inBackground(f.ctx(), c, "k")
	time.Sleep(3 * childTTL() / 2) // it renews
	assert.Empty(t, wait, "granted while the child lives")
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // gone
	killed := time.Now()
	d := readLock(f.document("k"))
	a := f.granted(wait)
	f.within(childTTL()+slack+pollPause, a.when.Sub(killed), "free")
	if since := readLock(f.document("k")).only().Since; len(d.Holders) == 1 && since.Before(d.only().ExpireAt) {
		t.Errorf("granted at %v, before the end at %v", since, d.only().ExpireAt)
	}
	assert.Greater(t, a.lease.Token(), token, "the token rises")
	f.release(a.lease)
}

func TestAnOutageGivesCleanErrorsAndEverythingWorksAfterIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(pace.Of(time.Second)))
	held := f.acquire(c, "held")
	waited := f.acquire(f.client(mongolock.TTL(20*time.Second)), "waited")
	wait := f.inBackground(f.ctx(), c, "waited")
	f.waits(c, "waited")
	proxy.Cut()
	down := time.Now()
	for time.Since(down) < pace.Of(5*time.Second) {
		ctx, cancel := context.WithTimeout(f.ctx(), 300*time.Millisecond)
		l, err := c.TryAcquire(ctx, "k")
		cancel()
		if l != nil || err == nil || errors.Is(err, mongolock.ErrHeld) || errors.Is(err, mongolock.ErrLost) || errors.Is(err, mongolock.ErrClosed) {
			t.Fatalf("answered %v, %v", l, err)
		}
		time.Sleep(50 * time.Millisecond) // real: between two tries
	}
	assert.Empty(t, wait, "the waiter gave up")
	assert.ErrorIs(t, held.Err(), mongolock.ErrLost, "what could not be renewed")
	proxy.Restore()
	f.until(time.Now().Add(3*time.Second), "all works again", func() bool {
		ctx, cancel := context.WithTimeout(f.ctx(), pace.Of(time.Second))
		defer cancel()
		l, err := c.Acquire(ctx, "k")
		return err == nil && l.Release() == nil
	})
	f.release(f.acquire(c, "held"))
	f.release(waited)
	f.release(f.granted(wait).lease)
}

func TestCloseReleasesAllAndLeavesNoGoroutine(t *testing.T) {
	// Not parallel: it counts goroutines.
	f := newFixture(t)
	conn := f.connect(f.uri)
	warm := f.clientOn(conn)
	f.release(f.acquire(warm, "warm"))
	require.NoError(t, warm.Close())
	before := engineGoroutines()
	ttl := pace.Of(3 * time.Second)
	c := f.clientOn(conn, mongolock.TTL(ttl))
	var all []*mongolock.Lease
	for i := range 20 {
		all = append(all, f.acquire(c, fmt.Sprint("k", i)))
	}
	wait := f.inBackground(f.ctx(), c, "k0")
	time.Sleep(ttl * 2 / 5) // renewed
	assert.NoError(t, c.Close())
	a := <-wait
	assert.ErrorIs(t, a.err, mongolock.ErrClosed, "a waiter got %v", a.lease)
	assert.Zero(t, f.count(), "keys are left")
	for _, l := range all {
		assert.ErrorIs(t, l.Err(), mongolock.ErrClosed, "a lease ended")
	}
	_, tryErr := c.TryAcquire(f.ctx(), "k")
	_, inspectErr := c.Inspect(f.ctx(), "k")
	for _, err := range []error{tryErr, inspectErr, c.EnsureIndex(f.ctx()), all[0].Renew(f.ctx())} {
		assert.ErrorIs(t, err, mongolock.ErrClosed, "after Close")
	}
	f.until(time.Now().Add(time.Second), "no goroutine is left", func() bool { return engineGoroutines() <= before })
}

// engineGoroutines counts those with a frame of the engine or the store.
func engineGoroutines() (n int) {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "mongolock.(*Client)") || strings.Contains(g, "mongolock.(*Lease)") || strings.Contains(g, "mongostore.(*Store)") {
			n++
		}
	}
	return n
}

func TestALockTakenInATransactionIsNoPartOfIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "transactions")
	conn := f.connect(f.uri)
	c, rival := f.clientOn(conn), f.client()
	other := f.acquire(rival, "held")
	data := testserver.Collection(t, f.connect(f.uri))
	_, err := data.InsertOne(f.ctx(), bson.D{{Key: "_id", Value: "seed"}})
	require.NoError(t, err)
	things := conn.Database(data.Database().Name()).Collection(data.Name())
	session, err := conn.StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	ctx := mongo.NewSessionContext(f.ctx(), session)
	insert := func(id string) {
		t.Helper()
		if _, err := things.InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
			t.Fatalf("the caller's transaction is disturbed: %v", err)
		}
	}
	insert("first")
	ttl := pace.Of(3 * time.Second)
	l, err := c.Acquire(ctx, "k", mongolock.TTL(ttl))
	require.NoError(t, err)
	_, err = rival.TryAcquire(f.ctx(), "k")
	assert.ErrorIs(t, err, mongolock.ErrHeld, "granted, and another")
	insert("second")
	_, err = c.TryAcquire(ctx, "held")
	assert.ErrorIs(t, err, mongolock.ErrHeld, "a held key")
	waiting, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	_, err = c.Acquire(waiting, "held")
	assert.ErrorIs(t, err, mongolock.ErrHeld, "a wait")
	cancel()
	insert("third")
	_, err = c.Inspect(ctx, "k")
	assert.NoError(t, err)
	assert.NoError(t, l.Renew(ctx))
	require.NoError(t, session.AbortTransaction(ctx))
	time.Sleep(ttl * 2 / 5) // renewed, with the values of an aborted transaction
	f.mustHold(l)
	f.release(l)
	f.mustBeAbsent("k")
	f.mustHold(other)
	n, err := data.CountDocuments(f.ctx(), bson.D{})
	assert.NoError(t, err, "documents")
	assert.EqualValues(t, 1, n, "documents")

	err = session.StartTransaction()
	require.NoError(t, err)
	insert("fourth")
	l, err = c.Acquire(ctx, "k")
	require.NoError(t, err)
	f.release(l) // its context is the transaction's
	f.mustBeAbsent("k")
	assert.NoError(t, session.CommitTransaction(ctx), "the caller's transaction is disturbed")
}

func TestABreakCannotHitTheNextHolder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	holder, next := f.client(), f.client()
	operator, proxy := f.behind(withRetries)
	l := f.acquire(holder, "k")
	rule := f.on(proxy, modifyCommands, faultproxy.Hold())
	answer := make(chan error, 1)
	go func() {
		_, err := operator.Break(f.ctx(), "k", "late", 0)
		answer <- err
	}()
	f.await(rule.Fired(), "the mark")
	f.release(l)
	after := f.acquire(next, "k")
	rule.Release()
	assert.NoError(t, <-answer)
	assert.NoError(t, after.Renew(f.ctx()))
	f.mustHold(after)
	f.release(after)
}
