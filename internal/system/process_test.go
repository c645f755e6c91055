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
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/testserver"
)

// The variables that make this program a child of a test.
const (
	mongoChildIs   = "MONGOLOCK_TEST_CHILD"
	mongoChildColl = "MONGOLOCK_TEST_COLLECTION" // database.collection
	mongoChildTTL  = 2 * time.Second
)

var mongoChildren = map[string]func(){
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

// holdUntilKilled holds the key until it is killed, or its parent is gone. It says
// so, and whenever it finds that it was stopped for a while, for how long, and what
// the first look at its lease's context then shows.
func holdUntilKilled(opts ...mongolock.AcquireOption) {
	c, _ := childClient(mongolock.TTL(mongoChildTTL))
	l, err := c.Acquire(context.Background(), "k", opts...)
	if err != nil {
		panic(err)
	}
	ctx := l.Context(context.Background())
	last := time.Now() // before its word: who reads that may stop it at once
	fmt.Println("holds", l.Token())
	for ; ; time.Sleep(time.Millisecond) {
		now := time.Now()
		if err := ctx.Err(); now.Sub(last) > mongoChildTTL/4 {
			fmt.Println(now.Sub(last), err != nil && errors.Is(context.Cause(ctx), mongolock.ErrLost))
		}
		last = now
	}
}

// childClient is what a child has to work with. The child ends with its parent.
func childClient(opts ...mongolock.ClientOption) (*mongolock.Client, *mongo.Collection) {
	conn, err := mongo.Connect(testserver.Dialling(os.Getenv("MONGODB_URI")))
	if err != nil {
		panic(err)
	}
	db, name, _ := strings.Cut(os.Getenv(mongoChildColl), ".")
	coll := conn.Database(db).Collection(name)
	c, err := mongolock.New(coll, append(opts, mongolock.WithOwner("child"), mongolock.WithoutIndex())...)
	if err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = c.Close() // and with it its feed, see spareTheServer
		os.Exit(0)
	}()
	return c, coll
}

// A mongoChild is a process of this program.
type mongoChild struct {
	*exec.Cmd
	t   testing.TB
	in  io.WriteCloser // it ends when this is closed
	out *bufio.Scanner
}

func (r *mongoRoom) child(what string) *mongoChild {
	r.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), mongoChildIs+"="+what, "MONGODB_URI="+r.uri, mongoChildColl+"="+r.coll.Database().Name()+"."+r.coll.Name())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = stdin.Close()
		if r.server == mongoApart {
			_ = cmd.Process.Kill()
		}
		late := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
	})
	stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // and then it says nothing more
	r.t.Cleanup(func() { stuck.Stop() })
	return &mongoChild{cmd, r.t, stdin, bufio.NewScanner(stdout)}
}

// says is the next line of the child.
func (c *mongoChild) says() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatal("the child ended without a word")
	}
	return c.out.Text()
}

func TestMongoAHolderThatIsKilledFreesTheKeyWithinItsTTL(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	child := r.child("holder")
	var token int64
	if _, err := fmt.Sscanf(child.says(), "holds %d", &token); err != nil {
		t.Fatal(err)
	}
	c := r.client()
	if _, err := c.TryAcquire(r.ctx(), "k"); !errors.Is(err, mongolock.ErrHeld) {
		t.Fatalf("the child does not hold it: %v", err)
	}
	wait := r.inBackground(r.ctx(), c, "k")
	time.Sleep(3 * mongoChildTTL / 2) // it renews
	if len(wait) != 0 {
		t.Error("granted while the child lives")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // gone
	killed := time.Now()
	d := readLock(r.document("k"))
	a := r.granted(wait)
	r.within(mongoChildTTL+mongoSlack+mongoPoll, a.when.Sub(killed), "free")
	if since := readLock(r.document("k")).only().Since; len(d.Holders) == 1 && since.Before(d.only().ExpireAt) {
		t.Errorf("granted at %v, before the end at %v", since, d.only().ExpireAt)
	}
	if a.lease.Token() <= token {
		t.Errorf("token %d after %d", a.lease.Token(), token)
	}
	r.release(a.lease)
}

func TestMongoAServerDownForAWhileGivesCleanErrorsAndThenAllWorksAgain(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	c, proxy := r.behind(withRetries, mongolock.TTL(time.Second))
	held := r.acquire(c, "held")
	waited := r.acquire(r.client(mongolock.TTL(20*time.Second)), "waited")
	wait := r.inBackground(r.ctx(), c, "waited")
	r.waits(c, "waited")
	proxy.Cut()
	down := time.Now()
	for time.Since(down) < 5*time.Second {
		ctx, cancel := context.WithTimeout(r.ctx(), 300*time.Millisecond)
		l, err := c.TryAcquire(ctx, "k")
		cancel()
		if l != nil || err == nil || errors.Is(err, mongolock.ErrHeld) || errors.Is(err, mongolock.ErrLost) || errors.Is(err, mongolock.ErrClosed) {
			t.Fatalf("answered %v, %v", l, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(wait) != 0 {
		t.Error("the waiter gave up")
	}
	if !errors.Is(held.Err(), mongolock.ErrLost) {
		t.Errorf("what could not be renewed says %v", held.Err())
	}
	proxy.Restore()
	r.until(time.Now().Add(3*time.Second), "all works again", func() bool {
		ctx, cancel := context.WithTimeout(r.ctx(), time.Second)
		defer cancel()
		l, err := c.Acquire(ctx, "k")
		return err == nil && l.Release() == nil
	})
	r.release(r.acquire(c, "held"))
	r.release(waited)
	r.release(r.granted(wait).lease)
}

func TestMongoCloseReleasesAllAndLeavesNoGoroutine(t *testing.T) {
	// Not parallel: it counts goroutines.
	r := newMongoRoom(t)
	conn := r.connect(r.uri)
	warm := r.clientOn(conn)
	r.release(r.acquire(warm, "warm"))
	if err := warm.Close(); err != nil {
		t.Fatal(err)
	}
	before := engineGoroutines()
	c := r.clientOn(conn, mongolock.TTL(3*time.Second))
	var all []*mongolock.Lease
	for i := range 20 {
		all = append(all, r.acquire(c, fmt.Sprint("k", i)))
	}
	wait := r.inBackground(r.ctx(), c, "k0")
	time.Sleep(1200 * time.Millisecond) // renewed
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if a := <-wait; !errors.Is(a.err, mongolock.ErrClosed) {
		t.Errorf("a waiter got %v, %v", a.lease, a.err)
	}
	if n := r.count(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	for _, l := range all {
		if !errors.Is(l.Err(), mongolock.ErrClosed) {
			t.Errorf("a lease ended with %v", l.Err())
		}
	}
	_, tryErr := c.TryAcquire(r.ctx(), "k")
	_, inspectErr := c.Inspect(r.ctx(), "k")
	for _, err := range []error{tryErr, inspectErr, c.EnsureIndex(r.ctx()), all[0].Renew(r.ctx())} {
		if !errors.Is(err, mongolock.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	r.until(time.Now().Add(time.Second), "no goroutine is left", func() bool { return engineGoroutines() <= before })
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

func TestMongoALockTakenInATransactionIsNoPartOfIt(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t, "transactions")
	conn := r.connect(r.uri)
	c, rival := r.clientOn(conn), r.client()
	other := r.acquire(rival, "held")
	data := mongoColl(t, r.connect(r.uri))
	if _, err := data.InsertOne(r.ctx(), bson.D{{Key: "_id", Value: "seed"}}); err != nil {
		t.Fatal(err)
	}
	things := conn.Database(data.Database().Name()).Collection(data.Name())
	session, err := conn.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.Background())
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	ctx := mongo.NewSessionContext(r.ctx(), session)
	insert := func(id string) {
		t.Helper()
		if _, err := things.InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
			t.Fatalf("the caller's transaction is disturbed: %v", err)
		}
	}
	insert("first")
	l, err := c.Acquire(ctx, "k", mongolock.TTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rival.TryAcquire(r.ctx(), "k"); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("granted, and another got %v", err)
	}
	insert("second")
	if _, err := c.TryAcquire(ctx, "held"); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("a held key answers %v", err)
	}
	waiting, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	if _, err := c.Acquire(waiting, "held"); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("a wait answers %v", err)
	}
	cancel()
	insert("third")
	if _, err := c.Inspect(ctx, "k"); err != nil {
		t.Error(err)
	}
	if err := l.Renew(ctx); err != nil {
		t.Error(err)
	}
	if err := session.AbortTransaction(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1200 * time.Millisecond) // renewed, with the values of an aborted transaction
	r.mustHold(l)
	r.release(l)
	r.mustBeAbsent("k")
	r.mustHold(other)
	if n, err := data.CountDocuments(r.ctx(), bson.D{}); err != nil || n != 1 {
		t.Errorf("%d documents, %v", n, err)
	}

	err = session.StartTransaction()
	if err != nil {
		t.Fatal(err)
	}
	insert("fourth")
	l, err = c.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	r.release(l) // its context is the transaction's
	r.mustBeAbsent("k")
	if err := session.CommitTransaction(ctx); err != nil {
		t.Errorf("the caller's transaction is disturbed: %v", err)
	}
}

func TestMongoABreakTellsTheHolderBeforeTheNextIsGranted(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	const ttl = 2 * time.Second
	holder, operator, next := r.client(mongolock.TTL(ttl)), r.client(), r.client()
	l := r.acquire(holder, "k")
	done := endOf(l)
	wait := r.inBackground(r.ctx(), next, "k")
	r.waits(next, "k")
	marked, err := operator.Break(r.ctx(), "k", "the operator's reason", ttl/3+ttl/10+mongoSlack+r.busy())
	if err != nil || len(marked) != 1 || marked[0].ID != l.ID() {
		t.Fatalf("marked %+v, %v", marked, err)
	}
	a := r.granted(wait)
	if told := <-done; told.After(a.when) {
		t.Errorf("told %v after the next was granted", told.Sub(a.when))
	}
	if err := l.Err(); !errors.Is(err, mongolock.ErrBroken) || !errors.Is(err, mongolock.ErrLost) || !strings.Contains(err.Error(), "the operator's reason") {
		t.Errorf("it ended with %v", err)
	}
	if err := l.Release(); !errors.Is(err, mongolock.ErrBroken) {
		t.Errorf("Release answers %v", err)
	}
	time.Sleep(ttl / 2)
	r.mustHold(a.lease)
	r.release(a.lease)

	if marked, err := operator.Break(r.ctx(), "k", "nobody there", 0); err != nil || len(marked) != 0 {
		t.Errorf("of a free key: %+v, %v", marked, err)
	}
}

func TestMongoABreakCannotHitTheNextHolder(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	holder, next := r.client(), r.client()
	operator, proxy := r.behind(withRetries)
	l := r.acquire(holder, "k")
	rule := r.on(proxy, mongoModify, faultproxy.Hold())
	answer := make(chan error, 1)
	go func() {
		_, err := operator.Break(r.ctx(), "k", "late", 0)
		answer <- err
	}()
	r.await(rule.Fired(), "the mark")
	r.release(l)
	after := r.acquire(next, "k")
	rule.Release()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if err := after.Renew(r.ctx()); err != nil {
		t.Error(err)
	}
	r.mustHold(after)
	r.release(after)
}

func TestMongoDetachEndsTheLeaseHereAndResumeKeepsTheToken(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	l := r.acquire(r.client(mongolock.TTL(3*time.Second)), "k", mongolock.Note("note"))
	ticket, err := l.Detach(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(l.Err(), mongolock.ErrDetached) || !errors.Is(l.Release(), mongolock.ErrDetached) {
		t.Errorf("it ended with %v, Release answers %v", l.Err(), l.Release())
	}
	if _, err := r.client().TryAcquire(r.ctx(), "k"); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("detached, and another got %v", err)
	}
	answers := make(chan mongoAnswer, 4)
	for _, c := range r.clients(cap(answers)) {
		go func() {
			l, err := c.Resume(r.ctx(), ticket)
			answers <- mongoAnswer{lease: l, err: err}
		}()
	}
	var resumed *mongolock.Lease
	for range cap(answers) {
		switch a := <-answers; {
		case a.err == nil && resumed == nil:
			resumed = a.lease
		case a.err == nil:
			t.Error("two resumed one ticket")
		case !errors.Is(a.err, mongolock.ErrLost):
			t.Errorf("answered %v", a.err)
		}
	}
	if resumed == nil {
		t.Fatal("nobody resumed it")
	}
	if resumed.Token() != l.Token() || resumed.ID() == l.ID() {
		t.Errorf("token %d, was %d", resumed.Token(), l.Token())
	}
	r.mustHold(resumed)
	r.release(resumed)
	next := r.acquire(r.client(), "k")
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	r.release(next)
}

func TestMongoATicketIsGoodForItsTTL(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	l := r.acquire(r.client(mongolock.TTL(800*time.Millisecond)), "k")
	ticket, err := l.Detach(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	honoured := inside.Honoured(l)
	c := r.client()
	a := r.granted(r.inBackground(r.ctx(), c, "k"))
	r.within(mongoSlack+mongoPoll, a.when.Sub(honoured), "another was granted after its end")
	if a.when.Before(honoured) {
		t.Errorf("another was granted %v before its end", honoured.Sub(a.when))
	}
	if l, err := r.client().Resume(r.ctx(), ticket); l != nil || !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("resumed: %v, %v", l, err)
	}
	r.mustHold(a.lease)
	r.release(a.lease)
}

func TestMongoMinHoldKeepsTheKeyThoughReleased(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	one, two := r.client(), r.client()
	begin := time.Now()
	l := r.acquire(one, "k", mongolock.MinHold(800*time.Millisecond))
	granted := time.Now()
	same, other := r.inBackground(r.ctx(), one, "k"), r.inBackground(r.ctx(), two, "k")
	r.release(l)
	if _, err := r.client().TryAcquire(r.ctx(), "k"); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("released, and another got %v", err)
	}
	for range 2 {
		var a mongoAnswer
		select {
		case a = <-same:
		case a = <-other:
		}
		if a.err != nil {
			t.Fatal(a.err)
		}
		if took := a.when.Sub(begin); took < 800*time.Millisecond {
			t.Errorf("granted %v after it was asked for", took)
		}
		r.within(800*time.Millisecond+mongoSlack+2*mongoPoll, a.when.Sub(granted), "granted")
		r.release(a.lease)
	}
}

func TestMongoMinHoldEndsAtTheTTLWhenTheHolderDied(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	one := r.client()
	l := r.acquire(one, "k", mongolock.TTL(800*time.Millisecond), mongolock.NoRenewal(), mongolock.MinHold(time.Minute))
	inside.Abandon(l)
	a := r.granted(r.inBackground(r.ctx(), r.client(), "k"))
	honoured := inside.Honoured(l)
	r.within(mongoSlack+mongoPoll, a.when.Sub(honoured), "free after its end")
	if a.when.Before(honoured) {
		t.Errorf("free %v before its end", honoured.Sub(a.when))
	}
	r.release(a.lease)
}
