package doclock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testserver"
)

type message struct {
	ID    int    `bson:"_id"`
	State string `bson:"state"`
	By    string `bson:"by,omitempty"`
}

var (
	pending = bson.D{{Key: "state", Value: "pending"}}
	oldest  = bson.D{{Key: "_id", Value: 1}}
)

func messages(t testing.TB, coll *mongo.Collection, n int) {
	t.Helper()
	for from := 0; from < n; from += 10_000 {
		var docs []any
		for i := from; i < min(n, from+10_000); i++ {
			docs = append(docs, message{ID: i, State: "pending"})
		}
		put(t, coll, docs...)
	}
}

func TestClaimsComeInOrderAndCountTheirAttempts(t *testing.T) {
	coll := collection(t)
	messages(t, coll, 3)
	locks := locksOn[message](t, coll)
	if err := locks.EnsureClaimIndex(t.Context(), pending, oldest); err != nil {
		t.Fatal(err)
	}
	claim := func() *Claimed[message] {
		t.Helper()
		return must(locks.TryClaim(t.Context(), pending, oldest))(t)
	}
	for want := range 3 {
		c := claim()
		if c.Value.ID != want || c.Attempts() != 1 {
			t.Errorf("got %d at attempt %d, want %d", c.Value.ID, c.Attempts(), want)
		}
		defer c.Release()
	}
	if _, err := locks.TryClaim(t.Context(), pending, oldest); !errors.Is(err, ErrNoWork) {
		t.Errorf("the fourth got %v", err)
	}
}

func TestWhatIsCompletedIsNeverClaimedAgain(t *testing.T) {
	coll := collection(t)
	messages(t, coll, 2)
	locks := locksOn[message](t, coll)
	c := must(locks.TryClaim(t.Context(), pending, oldest))(t)
	c.Value.By = "me"
	if err := c.Complete(t.Context()); err != nil { // though its state is still pending
		t.Fatal(err)
	}
	if raw := get(t, coll, 0); raw.Lookup("by").StringValue() != "me" || readLock(raw, "lock").id != "" || !readLock(raw, "lock").done {
		t.Errorf("completed: %v", raw)
	}
	removed := must(locks.TryClaim(t.Context(), pending, oldest))(t)
	if err := removed.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := coll.FindOne(t.Context(), ID(1)).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Errorf("removed: %v", err)
	}
	if _, err := locksOn[message](t, coll).TryClaim(t.Context(), pending, oldest); !errors.Is(err, ErrNoWork) {
		t.Errorf("got %v", err)
	}
	// By its key it can be locked as any other, and is no less done for that.
	must(locks.TryAcquire(t.Context(), ID(0)))(t).Release()
	if !readLock(get(t, coll, 0), "lock").done {
		t.Error("no longer done")
	}
	if err := c.Complete(t.Context()); !errors.Is(err, mongolock.ErrReleased) {
		t.Errorf("completed twice: %v", err)
	}
}

func TestWhatIsRequeuedComesBackNoSooner(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	messages(t, coll, 1)
	locks := locksOn[message](t, coll)
	c := must(locks.TryClaim(t.Context(), pending, oldest))(t)
	c.Value.By = "me"
	const after = 700 * time.Millisecond
	sent := time.Now()
	if err := c.Requeue(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.TryClaim(t.Context(), pending, oldest); !errors.Is(err, ErrNoWork) {
		t.Errorf("at once: %v", err)
	}
	must(locks.TryAcquire(t.Context(), ID(0)))(t).Release() // by its key it is free
	c = must(locks.Claim(t.Context(), pending, oldest))(t)
	if took := time.Since(sent); took < after || took > after+2500*time.Millisecond {
		t.Errorf("back after %v", took)
	}
	if c.Attempts() != 2 || c.Value.By != "me" {
		t.Errorf("attempt %d of %+v", c.Attempts(), c.Value)
	}
	for _, after := range []time.Duration{-1, 1000 * 24 * time.Hour} {
		if err := c.Requeue(t.Context(), after); err == nil {
			t.Errorf("Requeue(%v) is accepted", after)
		}
	}
	if err := c.Requeue(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if c = must(locks.TryClaim(t.Context(), pending, oldest))(t); c.Attempts() != 3 {
		t.Errorf("attempt %d", c.Attempts())
	}
}

func TestADeadWorkersDocumentComesBackAfterItsLease(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	messages(t, coll, 1)
	const ttl = 500 * time.Millisecond
	asked := time.Now() // it lasts from then, however late the answer is
	dead := must(locksOn[message](t, coll).TryClaim(t.Context(), pending, oldest, mongolock.TTL(ttl), mongolock.NoRenewal()))(t)
	c := must(locksOn[message](t, coll).Claim(t.Context(), pending, oldest))(t)
	if took := time.Since(asked); took < ttl || took > 3*time.Second {
		t.Errorf("claimed again after %v", took)
	}
	if c.Attempts() != 2 || c.Lease().Token() <= dead.Lease().Token() {
		t.Errorf("attempt %d, token %d after %d", c.Attempts(), c.Lease().Token(), dead.Lease().Token())
	}
	if err := dead.Complete(t.Context()); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("the dead one completes it: %v", err)
	}
}

// drain has workers of several processes' making claim and complete all there is,
// and checks how often each was claimed, and what was sent for a claim.
func drain(t *testing.T, n, processes, workers int, most float64) {
	taps := make([]testserver.Tap, processes)
	var locks []*Locks[message]
	coll := collection(t)
	messages(t, coll, n)
	uri := uriOf(t)
	for i := range taps {
		locks = append(locks, locksOn[message](t, again(t, coll, uri, taps[i].On), With(mongolock.WithOwner(fmt.Sprint("p", i)))))
	}
	if err := locks[0].EnsureClaimIndex(t.Context(), pending, oldest); err != nil {
		t.Fatal(err)
	}
	for i := range taps {
		taps[i].TakeNames()
	}
	var twice, claims atomic.Int64
	seen := make([]atomic.Int32, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range processes * workers {
		l := locks[i%processes]
		wg.Go(func() {
			for {
				c, err := l.TryClaim(t.Context(), pending, oldest)
				if errors.Is(err, ErrNoWork) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				claims.Add(1)
				if seen[c.Value.ID].Add(1) > 1 {
					twice.Add(1)
				}
				c.Value.State = "sent"
				if err := c.Complete(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for id := range seen {
		if seen[id].Load() == 0 {
			t.Errorf("%d was never claimed", id)
		}
	}
	if twice.Load() > 0 {
		t.Errorf("%d were claimed twice", twice.Load())
	}
	sent := 0
	for i := range taps {
		for _, name := range taps[i].TakeNames() {
			if slices.Contains([]string{"findAndModify", "find", "hello"}, name) {
				sent++
			}
		}
	}
	perClaim := float64(sent)/float64(claims.Load()) - 1 // each was completed, by one
	t.Logf("%d processes of %d workers: %d claims, %.3f commands for each, %.0f a second", processes, workers, claims.Load(), perClaim, float64(n)/took.Seconds())
	if perClaim > most {
		t.Errorf("%.3f commands per claim", perClaim)
	}
}

// Of 10,000, which take longer, bench/ counts it.
func TestEightWorkersDrainAQueueWithHardlyMoreThanACommandEach(t *testing.T) {
	needs(t, "atomic")
	drain(t, 1000, 1, 8, 1.3)
}

// Who fought for the first of them would send eight. The shorter the queue, the more
// its end weighs, where all are after the same few: bench/ has a longer one, and the limit
// of 1.3.
func TestWorkersOfSeveralProcessesSpread(t *testing.T) {
	needs(t, "atomic")
	drain(t, 1000, 8, 1, 1.6)
}

func TestAWaiterIsWokenByAnAnnouncement(t *testing.T) {
	t.Parallel()
	needs(t, "capped", "atomic")
	coll := collection(t)
	locks := locksOn[message](t, coll)
	claimed := make(chan error)
	wait := func() {
		_, err := locks.Claim(t.Context(), pending, oldest)
		claimed <- err
	}
	go wait()
	time.Sleep(3 * time.Second) // it looks about once a second by now, and its feed is open
	var woken []time.Duration
	for i := range 3 {
		put(t, coll, message{ID: i, State: "pending"})
		announced := time.Now()
		if err := Announce(t.Context(), coll); err != nil {
			t.Fatal(err)
		}
		if err := <-claimed; err != nil {
			t.Fatal(err)
		}
		woken = append(woken, time.Since(announced))
		go wait()
		time.Sleep(2 * time.Second)
	}
	go func() { <-claimed }()
	slices.Sort(woken)
	if woken[1] > 250*time.Millisecond {
		t.Errorf("woken after %v", woken)
	}
}

func TestWithoutAnAnnouncementAWaiterFindsOutByItself(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	locks := locksOn[message](t, coll)
	claimed := make(chan time.Time, 2)
	for range 2 {
		go func() {
			if _, err := locks.Claim(t.Context(), pending, oldest); err != nil {
				t.Error(err)
			}
			claimed <- time.Now()
		}()
	}
	time.Sleep(time.Second)
	inserted := time.Now()
	messages(t, coll, 2)
	for range 2 {
		if late := (<-claimed).Sub(inserted); late > 2500*time.Millisecond {
			t.Errorf("%v late", late)
		}
	}
}

func TestAWaitEndsWithItsContextAndWithTheLocks(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	locks := locksOn[message](t, coll)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := locks.Claim(ctx, pending, oldest); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	failed := make(chan error)
	go func() {
		_, err := locks.Claim(t.Context(), pending, oldest)
		failed <- err
	}()
	time.Sleep(200 * time.Millisecond)
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, mongolock.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := locks.TryClaim(t.Context(), pending, oldest); !errors.Is(err, mongolock.ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestWhatDoesNotDecodeHoldsNobodyUp(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: 0}, {Key: "state", Value: "pending"}, {Key: "by", Value: bson.A{}}}, message{ID: 1, State: "pending"})
	locks := locksOn[message](t, coll)
	if _, err := locks.TryClaim(t.Context(), pending, oldest); !errors.Is(err, ErrDecode) {
		t.Fatalf("got %v", err)
	}
	if lock := readLock(get(t, coll, 0), "lock"); lock.id != "" || lock.done {
		t.Errorf("it is left as %+v", lock)
	}
	if c := must(locks.TryClaim(t.Context(), pending, oldest))(t); c.Value.ID != 1 {
		t.Errorf("then %d", c.Value.ID)
	}
	if _, err := locks.TryClaim(t.Context(), pending, oldest); !errors.Is(err, ErrNoWork) {
		t.Errorf("then %v", err)
	}
}
