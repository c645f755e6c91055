package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store"
)

// ended is the context of a call: cancelled, or with a deadline in a second.
func ended(t *testing.T, how string) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	switch how {
	case "deadline":
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	case "later":
		time.AfterFunc(time.Second, cancel)
	default:
		cancel()
	}
	t.Cleanup(cancel)
	return ctx
}

func TestEveryEndOfACallHasItsName(t *testing.T) {
	calls := map[string]struct {
		call func(t *testing.T, locks *mongolocktest.Locker) error
		want string
	}{
		"a grant": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.TryAcquire(t.Context(), "k")
			_ = lease.Release()
			return err
		}, mongolock.OutcomeGranted},
		"a refusal": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Hold("k")
			_, err := locks.TryAcquire(t.Context(), "k")
			return err
		}, mongolock.OutcomeHeld},
		"MaxWait": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Hold("k")
			_, err := locks.Acquire(t.Context(), "k", mongolock.MaxWait(time.Second))
			assert.ErrorIs(t, err, mongolock.ErrHeld)
			return err
		}, mongolock.OutcomeTimeout},
		"MaxWait, after a fault": {func(t *testing.T, locks *mongolocktest.Locker) error {
			release := locks.Hold("k")
			time.AfterFunc(500*time.Millisecond, func() { locks.Fail(errors.New("down")); release() })
			_, err := locks.Acquire(t.Context(), "k", mongolock.MaxWait(2*time.Second))
			return err
		}, mongolock.OutcomeTimeout},
		"a deadline": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Hold("k")
			_, err := locks.Acquire(ended(t, "deadline"), "k")
			return err
		}, mongolock.OutcomeTimeout},
		"a cancel": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Hold("k")
			_, err := locks.Acquire(ended(t, "later"), "k")
			return err
		}, mongolock.OutcomeCancelled},
		"a context that had ended": {func(t *testing.T, locks *mongolocktest.Locker) error {
			_, err := locks.Acquire(ended(t, "before"), "k")
			return err
		}, mongolock.OutcomeCancelled},
		"a wait under a lease that was lost": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "mine", mongolock.MaxHold(time.Second))
			require.NoError(t, err)
			locks.Hold("k")
			_, err = locks.Acquire(lease.Context(t.Context()), "k")
			return err
		}, mongolock.OutcomeCancelled},
		"a lost lease": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "k")
			require.NoError(t, err)
			locks.Lose("k")
			return lease.Release()
		}, mongolock.OutcomeLost},
		"MaxHold": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "k", mongolock.MaxHold(time.Second))
			require.NoError(t, err)
			<-lease.Done()
			return lease.Err()
		}, mongolock.OutcomeLost},
		"a released lease": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "k")
			require.NoError(t, errors.Join(err, lease.Release()))
			return lease.Renew(t.Context())
		}, mongolock.OutcomeReleased},
		"an outage": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Fail(errors.New("down"))
			defer locks.Fail(nil)
			_, err := locks.TryAcquire(t.Context(), "k")
			return err
		}, mongolock.OutcomeUnknown},
		"an outage that changed nothing, after a deadline of the driver": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Fail(fmt.Errorf("%w: %w", store.ErrNotApplied, context.DeadlineExceeded))
			defer locks.Fail(nil)
			_, err := locks.TryAcquire(t.Context(), "k")
			return err
		}, mongolock.OutcomeFailed},
		"another mode": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "k", mongolock.Shared())
			require.NoError(t, err)
			defer lease.Release()
			_, err = locks.TryAcquire(t.Context(), "k", mongolock.OneOf(2))
			return err
		}, mongolock.OutcomeFailed},
		"a closed client": {func(t *testing.T, locks *mongolocktest.Locker) error {
			require.NoError(t, locks.Close())
			_, err := locks.Acquire(t.Context(), "k")
			return err
		}, mongolock.OutcomeCancelled},
	}
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := c.call(t, mongolocktest.New(t))
				assert.Equal(t, c.want, mongolock.OutcomeOf(err), "the outcome of %v", err)
			})
		})
	}
}
