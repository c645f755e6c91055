package system

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	mongoChildBusy = 3 * time.Second        // how long children come and go
	mongoChildHold = 400 * time.Millisecond // of a reader in a stream

	mongoPresence = ".presence" // the collection where children say that they are inside
)

// presence adds to the count of those of a kind that are inside, and answers all
// counts.
func presence(coll *mongo.Collection, key, kind string, by int) (inside struct{ Readers, Writers, Permits int }) {
	err := coll.Database().Collection(coll.Name()+mongoPresence).FindOneAndUpdate(context.Background(),
		bson.D{{Key: "_id", Value: key}}, bson.D{{Key: "$inc", Value: bson.D{{Key: kind, Value: by}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&inside)
	if err != nil {
		panic(err)
	}
	return inside
}

// comeAndGo takes a key again and again, in so many goroutines, and says what it saw
// there that must not be, and in the end how often it was in.
func comeAndGo(key, kind string, n int, opts ...mongolock.AcquireOption) {
	c, coll := childClient()
	var mu sync.Mutex // protects served
	served := 0
	var wg sync.WaitGroup
	for end := time.Now().Add(mongoChildBusy); n > 0; n-- {
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
	c, _ := childClient(mongolock.TTL(mongoChildTTL))
	fmt.Println("ready")
	for i := range 2 {
		go func() {
			time.Sleep(time.Duration(i) * mongoChildHold / 2)
			for {
				if l, err := c.Acquire(context.Background(), "k", mongolock.Shared()); err == nil {
					time.Sleep(mongoChildHold)
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
	for end := time.Now().Add(mongoChildBusy); time.Now().Before(end); served++ {
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

// serve lets children work and fails if one of them saw something wrong, or got
// nothing done. The counts are there before them: see confirm for what an upsert in a
// race may answer.
func (r *mongoRoom) serve(kinds ...string) {
	r.t.Helper()
	counts := r.coll.Database().Collection(r.coll.Name() + mongoPresence)
	if _, err := counts.InsertMany(r.ctx(), []bson.D{{{Key: "_id", Value: "k"}}, {{Key: "_id", Value: "p"}}, {{Key: "_id", Value: "all"}}}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = counts.Drop(context.Background()) })
	var children []*mongoChild
	for _, kind := range kinds {
		children = append(children, r.child(kind))
	}
	for i, c := range children {
		served := 0
		for served == 0 {
			line := c.says()
			if _, err := fmt.Sscanf(line, "served %d", &served); err != nil {
				r.t.Fatalf("%s: %s", kinds[i], line)
			} else if served == 0 {
				r.t.Fatalf("%s: nothing done", kinds[i])
			}
		}
		r.t.Logf("%s: in %d times", kinds[i], served)
	}
}

func TestMongoReadersAndWritersOfSeveralProcessesAreNeverInsideTogether(t *testing.T) {
	t.Parallel()
	newMongoRoom(t).serve("readers", "readers", "writers", "writers")
}

func TestMongoPermitsOfSeveralProcessesAreNoMoreThanTheirLimit(t *testing.T) {
	t.Parallel()
	newMongoRoom(t).serve("permits", "permits", "permits")
}

func TestMongoAcquireAllInOppositeOrdersDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	r.serve("upward", "downward", "downward")
	for _, key := range []string{"a", "b", "c"} {
		r.mustBeAbsent(key)
	}
}

func TestMongoAStreamOfReadersOfOtherProcessesKeepsNoWriterOut(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	var stream []*mongoChild
	for range 3 {
		child := r.child("stream")
		if line := child.says(); line != "ready" {
			t.Fatal(line)
		}
		stream = append(stream, child)
	}
	c := r.client()
	for range 5 {
		r.until(time.Now().Add(5*time.Second), "readers are in", func() bool { return len(r.holders("k")) > 1 })
		time.Sleep(mongoChildHold)
		start := time.Now()
		l := r.acquire(c, "k")
		r.within(mongoChildHold+mongoSlack+mongoPoll, time.Since(start), "in")
		r.release(l)
	}
	for _, child := range stream {
		child.dies()
	}
}

// dies kills the child and waits until what it held has run out.
func (c *mongoChild) dies() {
	_ = c.Process.Kill()
	_ = c.Wait()
	time.Sleep(mongoChildTTL + mongoSlack)
}

func TestMongoWhoSharesAndIsKilledKeepsOthersOutForItsTTL(t *testing.T) {
	for kind, opts := range map[string][]mongolock.AcquireOption{"reader": nil, "permit": {mongolock.OneOf(2)}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t)
			child, stays := r.child(kind), r.child(kind)
			var token int64
			for _, c := range []*mongoChild{child, stays} {
				if _, err := fmt.Sscanf(c.says(), "holds %d", &token); err != nil {
					t.Fatal(err)
				}
			}
			wait := r.inBackground(r.ctx(), r.client(), "k", opts...)
			time.Sleep(3 * mongoChildTTL / 2) // they renew
			if len(wait) != 0 {
				t.Error("granted while they live")
			}
			kill := []*mongoChild{child}
			if kind == "reader" {
				kill = append(kill, stays)
			}
			for _, c := range kill {
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = c.Wait()
			}
			killed := time.Now()
			a := r.granted(wait)
			r.within(mongoChildTTL+mongoSlack+mongoPoll, a.when.Sub(killed), "free")
			if kind == "reader" && a.lease.Token() <= token {
				t.Errorf("token %d after %d", a.lease.Token(), token)
			}
			if kind == "permit" && len(r.holders("k")) != 2 {
				t.Errorf("the permit of the dead is not given to the next: %d holders", len(r.holders("k")))
			}
			r.release(a.lease)
			if kind == "permit" {
				stays.dies()
			}
		})
	}
}

// However the last holder goes, who waits in another process is woken, and does not
// find out by itself.
func TestMongoWhoWaitsIsWokenHoweverTheLastSharerGoes(t *testing.T) {
	for name, leave := range map[string]func(r *mongoRoom, holder *mongolock.Client, l *mongolock.Lease){
		"release":  func(r *mongoRoom, holder *mongolock.Client, l *mongolock.Lease) { r.release(l) },
		"break":    func(r *mongoRoom, holder *mongolock.Client, l *mongolock.Lease) { r.mustBreak(l.Key()) },
		"Close":    func(r *mongoRoom, holder *mongolock.Client, l *mongolock.Lease) { _ = holder.Close() },
		"clean-up": func(r *mongoRoom, holder *mongolock.Client, l *mongolock.Lease) { inside.Undo(l, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMongoRoom(t)
			holder, writer := r.client(mongolock.WithMargin(0)), r.client()
			l := r.acquire(holder, "k", mongolock.Shared())
			r.release(r.acquire(holder, "k", mongolock.Shared())) // another comes and goes
			wait := r.inBackground(r.ctx(), writer, "k")
			r.waits(writer, "k")
			r.until(time.Now().Add(5*time.Second), "it listens", func() bool {
				return inside.Look(writer, "k").Listening
			})
			start := time.Now()
			leave(r, holder, l)
			a := r.granted(wait)
			r.within(mongoSlack, a.when.Sub(start), "woken")
			r.release(a.lease)
			_ = l.Release()
		})
	}
}

func (r *mongoRoom) mustBreak(key string) {
	r.t.Helper()
	if marked, err := r.client().Break(r.ctx(), key, "the operator's reason", 0); err != nil || len(marked) != 1 {
		r.t.Fatalf("marked %+v, %v", marked, err)
	}
}

func TestMongoABreakTellsEveryReaderBeforeTheWriterIsGranted(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	const ttl = 1500 * time.Millisecond
	var ends []<-chan time.Time
	var readers []*mongolock.Lease
	for range 3 {
		l := r.acquire(r.client(mongolock.TTL(ttl)), "k", mongolock.Shared())
		readers, ends = append(readers, l), append(ends, endOf(l))
	}
	writer := r.client()
	wait := r.inBackground(r.ctx(), writer, "k")
	r.waits(writer, "k")
	marked, err := r.client().Break(r.ctx(), "k", "the operator's reason", ttl/3+ttl/10+mongoSlack+r.busy())
	if err != nil || len(marked) != len(readers) {
		t.Fatalf("marked %+v, %v", marked, err)
	}
	a := r.granted(wait)
	for i, l := range readers {
		if told := <-ends[i]; told.After(a.when) {
			t.Errorf("told %v after the writer was granted", told.Sub(a.when))
		}
		if err := l.Err(); !errors.Is(err, mongolock.ErrBroken) || !strings.Contains(err.Error(), "the operator's reason") {
			t.Errorf("it ended with %v", err)
		}
		if a.lease.Token() <= l.Token() {
			t.Errorf("token %d after %d", a.lease.Token(), l.Token())
		}
	}
	time.Sleep(ttl / 2)
	r.mustHold(a.lease)
	r.release(a.lease)
}

func TestMongoMinHoldOfAReaderKeepsWritersOutAndNoReader(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	const keep = 800 * time.Millisecond
	begin := time.Now()
	kept := r.acquire(r.client(), "k", mongolock.Shared(), mongolock.MinHold(keep))
	granted := time.Now()
	other := r.acquire(r.client(), "k", mongolock.Shared())
	r.release(kept)
	third := r.acquire(r.client(), "k", mongolock.Shared())
	wait := r.inBackground(r.ctx(), r.client(), "k")
	r.release(third)
	r.release(other)
	a := r.granted(wait)
	if took := a.when.Sub(begin); took < keep {
		t.Errorf("granted %v after it was asked for", took)
	}
	r.within(keep+mongoSlack+mongoPoll, a.when.Sub(granted), "granted")
	r.release(a.lease)
}

func TestMongoAWriterThatGivesUpLetsReadersOfOtherProcessesIn(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	reader := r.acquire(r.client(), "k", mongolock.Shared())
	writer, late := r.client(), r.client()
	ctx, cancel := context.WithCancel(r.ctx())
	gone := r.inBackground(ctx, writer, "k")
	r.waits(writer, "k")
	wait := r.inBackground(r.ctx(), late, "k", mongolock.Shared())
	r.waits(late, "k")
	start := time.Now()
	cancel()
	if a := <-gone; !errors.Is(a.err, context.Canceled) || !errors.Is(a.err, mongolock.ErrHeld) {
		t.Errorf("it got %v", a.err)
	}
	a := r.granted(wait)
	r.within(mongoSlack+mongoPoll, a.when.Sub(start), "let in")
	r.release(a.lease)
	r.release(reader)
	r.mustBeAbsent("k")
}

func TestMongoAJoinInATransactionIsNoPartOfIt(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t, "transactions")
	conn := r.connect(r.uri)
	c := r.clientOn(conn)
	stays := r.acquire(r.client(), "k", mongolock.Shared())
	session, err := conn.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.Background())
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	ctx := mongo.NewSessionContext(r.ctx(), session)
	l, err := c.Acquire(ctx, "k", mongolock.Shared())
	if err != nil {
		t.Fatal(err)
	}
	if err := session.AbortTransaction(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(r.holders("k")); n != 2 {
		t.Errorf("%d holders after the abort", n)
	}
	r.release(l)
	r.mustHold(stays)
	r.release(stays)
	r.mustBeAbsent("k")
}
