// Package mongolocktest tests code that locks. It has a real client on a store in memory, and
// causes the three things that go wrong with locks.
//
//	func TestReportIsSkippedWhileAnotherHostWritesIt(t *testing.T) {
//		locks := mongolocktest.New(t)
//		release := locks.Hold("nightly-report")
//		... // your code, given locks, finds the key held
//		release()
//		... // and now it finds the key free
//	}
//
// [Locker.Hold] holds a key as another process would, [Locker.Lose] takes a lease away from
// your code, and [Locker.Fail] makes the store unreachable. Everything else (waiting, renewing,
// expiring, contexts that end) is done by the real engine.
//
// It works in real time and in virtual time. With testing/synctest, call New
// inside the bubble and with the bubble's own t; hours of renewals then pass in
// milliseconds.
package mongolocktest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// stopping is how long the code under test may take to release its leases after the
// test has ended.
const stopping = time.Second

// A Locker is a client on a store of its own, in memory. It is a
// [mongolock.Locker] and has every method of a client. Where your code needs a
// *mongolock.Client, give it the Locker's Client. New makes one.
type Locker struct {
	*mongolock.Client

	t      testing.TB
	store  *lab.Store
	orders *book
	rival  *mongolock.Client // holds keys as another process; its store never fails

	mu   sync.Mutex      // protects lost
	lost map[string]bool // leases that Lose took, by ID
}

// New makes a Locker for one test. When the test ends, the client is shut down. A
// lease that the code under test has not released, and not lost, fails the test. So does code
// that takes keys in different orders, as long as it acquires by the Locker itself: see [Orders].
//
// The client logs to the test's log unless an option names another logger.
func New(t testing.TB, opts ...mongolock.ClientOption) *Locker {
	t.Helper()
	mem := memstore.New()
	l := &Locker{t: t, store: lab.New(mem), orders: newBook(t), lost: make(map[string]bool)}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	client, err := mongolock.NewWithStore(l.store, append([]mongolock.ClientOption{mongolock.WithLogger(logger)}, opts...)...)
	if err != nil {
		t.Fatalf("mongolocktest: %v", err)
	}
	l.Client = client
	l.rival, err = mongolock.NewWithStore(mem, mongolock.WithOwner("somebody else"), mongolock.WithLogger(logger), mongolock.WithMargin(0))
	if err != nil {
		t.Fatalf("mongolocktest: %v", err)
	}
	t.Cleanup(l.end)
	return l
}

// end runs when the test is over.
func (l *Locker) end() {
	l.Fail(nil)
	if err := l.rival.Close(); err != nil {
		l.t.Logf("mongolocktest: %v", err)
	}
	held := l.leases()
	ctx, cancel := context.WithTimeout(context.Background(), stopping)
	defer cancel()
	if err := l.Shutdown(ctx); err != nil {
		l.t.Logf("mongolocktest: %v", err)
	}
	for _, lease := range held {
		if errors.Is(lease.Err(), mongolock.ErrClosed) && !l.t.Failed() { // a test that failed early could not release it
			l.t.Errorf("mongolocktest: the lease on %q was not released when the test ended", lease.Key())
		}
	}
}

// Acquire waits for a key, as that of a Client.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	l.orders.waits(ctx, key)
	return l.Client.Acquire(ctx, key, opts...)
}

// leases returns the leases that the client holds, however they were acquired.
func (l *Locker) leases() (held []*mongolock.Lease) {
	for _, one := range inside.Leases(l.Client) {
		if lease, ok := one.(*mongolock.Lease); ok && lease.Err() == nil {
			held = append(held, lease)
		}
	}
	return held
}

// Hold holds key as another process would, until release is called or the test ends.
// It fails the test if the key is held already.
func (l *Locker) Hold(key string) (release func()) {
	l.t.Helper()
	lease, err := l.rival.TryAcquire(context.Background(), key, mongolock.Note("mongolocktest"))
	if err != nil {
		if held := (*mongolock.HeldError)(nil); errors.As(err, &held) {
			held.Here = false // the rival stands for another process
		}
		l.t.Fatalf("mongolocktest: Hold(%q): %v", key, err)
	}
	return func() {
		l.t.Helper()
		if err := lease.Release(); err != nil {
			l.t.Errorf("mongolocktest: Hold(%q): release: %v", key, err)
		}
	}
}

// Lose takes the lease on key away from the code under test, as if an operator had
// removed it from the database. When Lose returns the client has noticed: the lease's
// Err matches ErrLost, its Done is closed and its contexts are cancelled. The key is
// free; use Hold to see what happens if another process takes it first. Lose fails the
// test if the client holds no lease on key. Leases count however they were acquired:
// by the Locker, by its Client, or by a package that was given either.
func (l *Locker) Lose(key string) {
	l.t.Helper()
	found := false
	for _, lease := range l.leases() {
		if lease.Key() != key {
			continue
		}
		found = true
		l.take(lease)
		_ = lease.Renew(context.Background()) // the lease's Err is checked instead
		if err := lease.Err(); !errors.Is(err, mongolock.ErrLost) {
			l.t.Errorf("mongolocktest: Lose(%q): the lease ended meanwhile: %v", key, err)
		}
	}
	if !found {
		l.t.Fatalf("mongolocktest: Lose(%q): the Locker has no lease on it", key)
	}
}

// take removes the record of a lease, whose renewal then answers ErrGone even while calls fail.
func (l *Locker) take(lease *mongolock.Lease) {
	ctx, key := context.Background(), lease.Key()
	if seen, err := l.store.Mem.Look(ctx, []string{key}); err == nil {
		ref := store.Ref{Key: key, ID: lease.ID(), Mode: seen[0].Mode}
		_, _ = l.store.Mem.Release(ctx, store.ReleaseRequest{Ref: ref}) // ErrGone: it is gone already
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[lease.ID()] = true
}

// Fail makes every call of the store fail with err, as if the database could not be
// reached, until Fail(nil). The client cannot know whether such a call was applied
// (ErrOutcomeUnknown), unless err is joined with mongolock.ErrNotApplied. Keys that Hold
// holds are not affected.
func (l *Locker) Fail(err error) {
	if err == nil {
		l.store.All(nil)
		return
	}
	l.store.All(lab.Fail(err))
	l.store.On(lab.Notify, nil) // wake-ups are hints and do not fail
	l.store.On(lab.Renew, func(_ context.Context, call *lab.Call) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, r := range call.Batch {
			answer := store.Renewed{Err: err}
			if l.lost[r.ID] {
				answer.Err = store.ErrGone
			}
			call.Renewed = append(call.Renewed, answer)
		}
		return nil
	})
}
