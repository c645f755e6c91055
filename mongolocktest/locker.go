// Package mongolocktest lets you test code that locks: a real client on a store
// in memory, and the three things that go wrong with locks, on command.
//
//	func TestReportIsSkippedWhileAnotherHostWritesIt(t *testing.T) {
//		locks := mongolocktest.New(t)
//		release := locks.Hold("nightly-report")
//		... // your code, given locks, finds the key held
//		release()
//		... // and now it does not
//	}
//
// [Locker.Hold] lets somebody else hold a key, [Locker.Lose] takes a lease away
// from your code, [Locker.Fail] puts the store out of reach. Everything else
// (waiting, renewing, expiring, contexts that end) is the engine itself, not an
// imitation of it.
//
// It works in real time and in virtual time. With testing/synctest, call New
// inside the bubble and with the bubble's own t; hours of renewals then pass in
// milliseconds.
package mongolocktest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// stopping is how long the code under test may take, once the test is over, to
// give back what it holds.
const stopping = time.Second

// A Locker is a client on a store of its own, in memory. It is a
// [mongolock.Locker], and has every method of a client; where your code wants a
// *mongolock.Client itself, give it the Locker's Client (Lose then knows nothing
// of its leases). New makes one.
type Locker struct {
	*mongolock.Client

	t     testing.TB
	store *failing
	rival *mongolock.Client // somebody else, whom Fail does not touch

	mu     sync.Mutex // protects leases
	leases []*mongolock.Lease
}

// New makes a Locker for one test. When the test ends its client is shut down: a
// lease that the code under test never releases, nor loses, fails the test.
//
// The client logs to the test's log, unless an option says otherwise.
func New(t testing.TB, opts ...mongolock.ClientOption) *Locker {
	t.Helper()
	mem := memstore.New()
	l := &Locker{t: t, store: &failing{mem: mem}}
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
	held := l.of("")
	ctx, cancel := context.WithTimeout(context.Background(), stopping)
	defer cancel()
	if err := l.Shutdown(ctx); err != nil {
		l.t.Logf("mongolocktest: %v", err)
	}
	for _, lease := range held {
		if errors.Is(lease.Err(), mongolock.ErrClosed) && !l.t.Failed() { // a test that broke off need not tidy up
			l.t.Errorf("mongolocktest: the lease on %q was not released when the test ended", lease.Key())
		}
	}
}

// Acquire is the client's.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return l.keep(l.Client.Acquire(ctx, key, opts...))
}

// TryAcquire is the client's.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return l.keep(l.Client.TryAcquire(ctx, key, opts...))
}

// Resume is the client's.
func (l *Locker) Resume(ctx context.Context, ticket string, opts ...mongolock.Option) (*mongolock.Lease, error) {
	return l.keep(l.Client.Resume(ctx, ticket, opts...))
}

// keep remembers a lease for Lose, and forgets those that ended.
func (l *Locker) keep(lease *mongolock.Lease, err error) (*mongolock.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.leases = append(slices.DeleteFunc(l.leases, ended), lease)
	}
	return lease, err
}

func ended(lease *mongolock.Lease) bool { return lease.Err() != nil }

// of returns the leases held on key, or all if it is empty.
func (l *Locker) of(key string) []*mongolock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases = slices.DeleteFunc(l.leases, ended)
	return slices.DeleteFunc(slices.Clone(l.leases), func(lease *mongolock.Lease) bool {
		return key != "" && lease.Key() != key
	})
}

// Hold lets somebody else hold key, however long, until release is called or the
// test ends. It fails the test if the key is taken already.
func (l *Locker) Hold(key string) (release func()) {
	l.t.Helper()
	lease, err := l.rival.TryAcquire(context.Background(), key, mongolock.Note("mongolocktest"))
	if err != nil {
		l.t.Fatalf("mongolocktest: Hold(%q): %v", key, err)
	}
	return func() {
		l.t.Helper()
		if err := lease.Release(); err != nil {
			l.t.Errorf("mongolocktest: Hold(%q): release: %v", key, err)
		}
	}
}

// Lose takes the lease on key away from the code under test, as if the key had
// been freed by hand in the database, and lets its client find out: when Lose
// returns, the lease's Err matches ErrLost, its Done is closed and its contexts
// are cancelled. The key is free; Hold it to see what happens when somebody else
// is faster. Lose fails the test if the code under test, through this Locker,
// holds no lease on key.
func (l *Locker) Lose(key string) {
	l.t.Helper()
	leases := l.of(key)
	if len(leases) == 0 || key == "" {
		l.t.Fatalf("mongolocktest: Lose(%q): the Locker has no lease on it", key)
	}
	for _, lease := range leases {
		l.store.lose(key, lease.ID())
		_ = lease.Renew(context.Background()) // Err tells
		if err := lease.Err(); !errors.Is(err, mongolock.ErrLost) {
			l.t.Errorf("mongolocktest: Lose(%q): the lease ended meanwhile: %v", key, err)
		}
	}
}

// Fail makes every call of the store fail with err, as if the database were out of
// reach, until Fail(nil). The client cannot tell whether such a call was applied
// (ErrOutcomeUnknown); join err with store.ErrNotApplied if it shall. Holders by
// Hold, whose own database is well, are not touched.
func (l *Locker) Fail(err error) { l.store.fail(err) }
