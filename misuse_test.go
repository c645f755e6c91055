package mongolock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
)

// everyCall is a call of everything that a client and a lease of it can be asked.
func everyCall(ctx context.Context, t *testing.T, c *mongolock.Client, lease *mongolock.Lease, ticket string) map[string]func() error {
	t.Helper()
	calls := callsOf(ctx, c, "another key")
	calls["Resume"] = func() error { _, err := c.Resume(ctx, ticket); return err }
	calls["Renew"] = func() error { return lease.Renew(ctx) }
	calls["Detach"] = func() error { _, err := lease.Detach(ctx); return err }
	calls["EnsureIndex"] = func() error { return c.EnsureIndex(ctx) }
	calls["List"] = func() error {
		var last error
		for _, err := range c.List(ctx, "") {
			last = err
		}
		return last
	}
	return calls
}

// withALease is a client that holds one lease and has detached another.
func withALease(t *testing.T, s *countingStore) (*mongolock.Client, *mongolock.Lease, string) {
	t.Helper()
	client := connect(s)
	ticket, err := acquire(t, client, "detached").Detach(t.Context())
	require.NoError(t, err)
	return client, acquire(t, client, "k"), ticket
}

func TestACallWithAnEndedContextSendsNothingAndSaysWhy(t *testing.T) {
	s := newCountingStore()
	client, lease, ticket := withALease(t, s)
	defer client.Close()
	defer lease.Release()
	why := errors.New("the user went home")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)

	before := s.n.Load()
	for name, call := range everyCall(ctx, t, client, lease, ticket) {
		if err := call(); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	assert.Zero(t, s.n.Load()-before, "store calls")
	assert.NoError(t, lease.Err(), "the lease")
}

func TestAClosedClientAnswersErrClosedAndSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore()
		client, lease, ticket := withALease(t, s)
		require.NoError(t, client.Close())
		before := s.n.Load()
		for name, call := range everyCall(t.Context(), t, client, lease, ticket) {
			assert.ErrorIs(t, call(), mongolock.ErrClosed, "%s", name)
		}
		assert.NoError(t, client.Close(), "Close again")
		assert.NoError(t, client.Shutdown(t.Context()), "Shutdown after Close")
		assert.NoError(t, lease.Release(), "Release after Close") // Close did it
		assert.Zero(t, s.n.Load()-before, "store calls")
		if lease.Remaining() != 0 || lease.Context(t.Context()).Err() == nil {
			t.Error("a lease of a closed client looks held")
		}
	})
}

func TestAPanicInTheJobReleases(t *testing.T) {
	for name, do := range doBoth(func() { panic("boom") }) {
		t.Run(name, func(t *testing.T) {
			client := connect(newCountingStore())
			defer client.Close()
			func() {
				defer func() {
					if p := recover(); p != "boom" {
						t.Errorf("recovered %v", p)
					}
				}()
				do(t.Context(), client)
			}()
			mustComeFree(t, client)
		})
	}
}

func TestTheEndOfTheJobsGoroutineReleases(t *testing.T) {
	for name, do := range doBoth(runtime.Goexit) { // as t.FailNow does
		t.Run(name, func(t *testing.T) {
			client := connect(newCountingStore())
			defer client.Close()
			var wg sync.WaitGroup
			wg.Go(func() { do(t.Context(), client) })
			wg.Wait()
			mustComeFree(t, client)
		})
	}
}

func doBoth(job func()) map[string]func(context.Context, *mongolock.Client) {
	fn := func(context.Context, *mongolock.Lease) error { job(); return nil }
	return map[string]func(context.Context, *mongolock.Client){
		"Do":    func(ctx context.Context, c *mongolock.Client) { _ = mongolock.Do(ctx, c, "k", fn) },
		"TryDo": func(ctx context.Context, c *mongolock.Client) { _, _ = mongolock.TryDo(ctx, c, "k", fn) },
	}
}

func mustComeFree(t *testing.T, client *mongolock.Client) {
	t.Helper()
	status, err := client.Inspect(t.Context(), "k")
	if err != nil || !status.Free() {
		t.Errorf("the key is not free: %v %v", status.Holders, err)
	}
}

func TestFiftyReleasesAtOnceAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore()
		client := connect(s)
		defer client.Close()
		lease := acquire(t, client, "k")
		before := s.n.Load()
		start := make(chan struct{})
		errs := make(chan error, 50)
		for range cap(errs) {
			go func() {
				<-start
				errs <- lease.Release()
			}()
		}
		synctest.Wait()
		close(start)
		for range cap(errs) {
			assert.NoError(t, <-errs)
		}
		if n := s.n.Load() - before; n != 1 {
			t.Errorf("%d store calls", n)
		}
	})
}

func TestJobsErrorsAreNotMixedUpWithTheLocks(t *testing.T) {
	client := connect(newCountingStore())
	defer client.Close()
	boom := errors.New("boom")
	job := func(context.Context, *mongolock.Lease) error { return boom }
	if err := mongolock.Do(t.Context(), client, "k", job); err != boom {
		t.Errorf("Do: %v", err)
	}
	ran, err := mongolock.TryDo(t.Context(), client, "k", job)
	if !ran || err != boom {
		t.Errorf("TryDo: %v, %v", ran, err)
	}
}

func TestAJobThatReleasesItselfIsNoFailure(t *testing.T) {
	client := connect(newCountingStore())
	defer client.Close()
	err := mongolock.Do(t.Context(), client, "k", func(_ context.Context, lease *mongolock.Lease) error {
		return lease.Release()
	})
	assert.NoError(t, err)
}

func TestTryDoRanThoughItsJobFoundAnotherKeyHeld(t *testing.T) {
	client := connect(newCountingStore())
	defer client.Close()
	ran, err := mongolock.TryDo(t.Context(), client, "k", func(context.Context, *mongolock.Lease) error {
		return mongolock.ErrHeld
	})
	if !ran || !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("ran: %v, %v", ran, err)
	}
}

func TestAClosingClientEndsAWaitWithErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore()
		holder, client := connect(s), connect(s)
		defer holder.Close()
		lease := acquire(t, holder, "k")
		defer lease.Release()
		done := make(chan error)
		go func() {
			_, err := client.Acquire(t.Context(), "k")
			done <- err
		}()
		time.Sleep(time.Hour)
		assert.NoError(t, client.Close())
		assert.ErrorIs(t, <-done, mongolock.ErrClosed, "Acquire")
	})
}
