package engine_test

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
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

// everyCall returns a call of each method of a client and of a lease of it.
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

// withALease returns a client that holds one lease and has detached another.
func withALease(t *testing.T, s *lab.Store) (*mongolock.Client, *mongolock.Lease, string) {
	t.Helper()
	client := connect(s)
	ticket, err := acquire(t, client, "detached").Detach(t.Context())
	require.NoError(t, err)
	return client, acquire(t, client, "k"), ticket
}

func TestACallWithAnEndedContextSendsNothingAndReturnsTheCause(t *testing.T) {
	s := lab.New(memstore.New())
	client, lease, ticket := withALease(t, s)
	defer client.Close()
	defer lease.Release()
	why := errors.New("the request was abandoned")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)

	before := s.Count()
	for name, call := range everyCall(ctx, t, client, lease, ticket) {
		err := call()
		assert.ErrorIs(t, err, context.Canceled, name)
		assert.ErrorIs(t, err, why, name)
	}
	assert.Zero(t, s.Count()-before, "store calls")
	assert.NoError(t, lease.Err(), "the lease")
}

func TestAClosedClientAnswersErrClosedAndSendsNothing(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		client, lease, ticket := withALease(t, s)
		require.NoError(t, client.Close())
		before := s.Count()
		for name, call := range everyCall(t.Context(), t, client, lease, ticket) {
			assert.ErrorIs(t, call(), mongolock.ErrClosed, name)
		}
		assert.NoError(t, client.Close(), "Close again")
		assert.NoError(t, client.Shutdown(t.Context()), "Shutdown after Close")
		assert.NoError(t, lease.Release(), "Release after Close, which has released it")
		assert.Zero(t, s.Count()-before, "store calls")
		assert.Zero(t, lease.Remaining())
		assert.Error(t, lease.Context(t.Context()).Err(), "a context of the lease")
	})
}

func TestAPanicInTheFunctionReleasesTheKey(t *testing.T) {
	for name, do := range doBoth(func() { panic("boom") }) {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, memstore.New())
			assert.PanicsWithValue(t, "boom", func() { do(t.Context(), client) })
			mustInspectFree(t, client)
		})
	}
}

func TestAFunctionThatEndsItsGoroutineReleasesTheKey(t *testing.T) {
	for name, do := range doBoth(runtime.Goexit) { // as t.FailNow does
		t.Run(name, func(t *testing.T) {
			client := newClient(t, memstore.New())
			var wg sync.WaitGroup
			wg.Go(func() { do(t.Context(), client) })
			wg.Wait()
			mustInspectFree(t, client)
		})
	}
}

// doBoth returns calls of Do and TryDo, both of which run job.
func doBoth(job func()) map[string]func(context.Context, *mongolock.Client) {
	fn := func(context.Context, *mongolock.Lease) error { job(); return nil }
	return map[string]func(context.Context, *mongolock.Client){
		"Do":    func(ctx context.Context, c *mongolock.Client) { _ = mongolock.Do(ctx, c, "k", fn) },
		"TryDo": func(ctx context.Context, c *mongolock.Client) { _, _ = mongolock.TryDo(ctx, c, "k", fn) },
	}
}

// mustInspectFree fails unless the client reports the key as free.
func mustInspectFree(t *testing.T, client *mongolock.Client) {
	t.Helper()
	status, err := client.Inspect(t.Context(), "k")
	require.NoError(t, err)
	assert.Empty(t, status.Holders)
	assert.True(t, status.Free(), "the key is free")
}

func TestFiftyConcurrentReleasesSendOneCommand(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		client := newClient(t, s)
		lease := acquire(t, client, "k")
		before := s.Count()
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
		assert.Equal(t, 1, s.Count()-before, "store calls")
	})
}

func TestDoAndTryDoReturnTheErrorOfTheFunctionUnchanged(t *testing.T) {
	client := newClient(t, memstore.New())
	boom := errors.New("boom")
	job := func(context.Context, *mongolock.Lease) error { return boom }
	assert.Same(t, boom, mongolock.Do(t.Context(), client, "k", job), "Do")
	ran, err := mongolock.TryDo(t.Context(), client, "k", job)
	assert.Same(t, boom, err, "TryDo")
	assert.True(t, ran)
}

func TestAFunctionMayReleaseTheLeaseItself(t *testing.T) {
	client := newClient(t, memstore.New())
	err := mongolock.Do(t.Context(), client, "k", func(_ context.Context, lease *mongolock.Lease) error {
		return lease.Release()
	})
	assert.NoError(t, err)
}

func TestTryDoRanThoughItsFunctionReturnsErrHeld(t *testing.T) {
	client := newClient(t, memstore.New())
	ran, err := mongolock.TryDo(t.Context(), client, "k", func(context.Context, *mongolock.Lease) error {
		return mongolock.ErrHeld
	})
	assert.ErrorIs(t, err, mongolock.ErrHeld)
	assert.True(t, ran)
}

func TestCloseEndsALongWaitWithErrClosed(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
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
