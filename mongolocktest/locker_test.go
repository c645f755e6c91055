package mongolocktest_test

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

var _ mongolock.Locker = (*mongolocktest.Locker)(nil)

// everywhere runs a test in real time and in virtual time.
func everywhere(t *testing.T, test func(t *testing.T)) {
	t.Run("real time", test)
	t.Run("virtual time", func(t *testing.T) { synctest.Test(t, test) })
}

func TestAHeldKeyIsRefusedUntilItsHolderReleases(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		release := locks.Hold("k")
		_, err := locks.TryAcquire(t.Context(), "k")
		var held *mongolock.HeldError
		require.ErrorAs(t, err, &held)
		assert.Equal(t, "somebody else", held.Holders[0].Owner)

		release()
		release() // may be called again
		lease, err := locks.TryAcquire(t.Context(), "k")
		require.NoError(t, err, "TryAcquire after the release")
		require.NoError(t, lease.Release())
	})
}

func TestAWaiterGetsAHeldKeyWhenItIsReleased(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		release := locks.Hold("k")
		done := make(chan error)
		go func() {
			done <- mongolock.Do(t.Context(), locks, "k", func(context.Context, *mongolock.Lease) error { return nil })
		}()
		release()
		require.NoError(t, <-done)
	})
}

func TestAHeldKeyStaysHeldForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		locks.Hold("k")
		time.Sleep(24 * time.Hour)
		_, err := locks.TryAcquire(t.Context(), "k")
		require.ErrorIs(t, err, mongolock.ErrHeld, "a day later")
	})
}

func TestALostLeaseHasEndedWhenLoseReturns(t *testing.T) {
	options := map[string][]mongolock.AcquireOption{
		"renewed":   nil,
		"NoRenewal": {mongolock.NoRenewal()},
		"MinHold":   {mongolock.MinHold(time.Hour)},
	}
	for name, opts := range options {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T) {
				locks := mongolocktest.New(t)
				lease, err := locks.Acquire(t.Context(), "k", opts...)
				require.NoError(t, err)
				ctx := lease.Context(t.Context())
				locks.Lose("k")
				require.ErrorIs(t, lease.Err(), mongolock.ErrLost)
				require.Error(t, ctx.Err(), "the lease's context")
				<-lease.Done()

				locks.Hold("k") // free at once
				require.ErrorIs(t, lease.Release(), mongolock.ErrLost)
				_, err = locks.TryAcquire(t.Context(), "k")
				require.ErrorIs(t, err, mongolock.ErrHeld, "the release of the lost lease removed the next holder")
			})
		})
	}
}

func TestLoseFindsALeaseHoweverItWasAcquired(t *testing.T) {
	ways := map[string]func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error){
		"Acquire": func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error) {
			return locks.Acquire(ctx, "k")
		},
		"TryAcquire": func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error) {
			return locks.TryAcquire(ctx, "k")
		},
		"Acquire of its Client": func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error) {
			return locks.Client.Acquire(ctx, "k")
		},
		"Resume of its Client": func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error) {
			first, err := locks.Client.Acquire(ctx, "k")
			if err != nil {
				return nil, err
			}
			ticket, err := first.Detach(ctx)
			if err != nil {
				return nil, err
			}
			return locks.Client.Resume(ctx, ticket)
		},
		"Acquire through a wrapper": func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error) {
			return wrapper{locks.Client}.Acquire(ctx, "k")
		},
		"Resume": func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error) {
			first, err := locks.Client.Acquire(ctx, "k")
			if err != nil {
				return nil, err
			}
			ticket, err := first.Detach(ctx)
			if err != nil {
				return nil, err
			}
			return locks.Resume(ctx, ticket)
		},
	}
	for name, acquire := range ways {
		t.Run(name, func(t *testing.T) {
			locks := mongolocktest.New(t)
			lease, err := acquire(t.Context(), locks)
			require.NoError(t, err)
			other, err := locks.Acquire(t.Context(), "other")
			require.NoError(t, err)
			locks.Lose("k")
			require.ErrorIs(t, lease.Err(), mongolock.ErrLost)
			require.NoError(t, other.Release(), "the lease on another key")
		})
	}
}

// A wrapper stands for a package that was given a client.
type wrapper struct{ *mongolock.Client }

func TestLoseTakesEveryLeaseOfASharedKey(t *testing.T) {
	locks := mongolocktest.New(t)
	one, err := locks.Acquire(t.Context(), "k", mongolock.Shared())
	require.NoError(t, err)
	two, err := locks.Client.Acquire(t.Context(), "k", mongolock.Shared())
	require.NoError(t, err)
	locks.Lose("k")
	require.ErrorIs(t, one.Err(), mongolock.ErrLost)
	require.ErrorIs(t, two.Err(), mongolock.ErrLost)
}

func TestALossInsideDoIsReturnedToItsCaller(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		err := mongolock.Do(t.Context(), locks, "k", func(ctx context.Context, _ *mongolock.Lease) error {
			locks.Lose("k")
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, mongolock.ErrLost)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestLoseWorksWhileTheStoreFails(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		lease, err := locks.Acquire(t.Context(), "k")
		require.NoError(t, err)
		locks.Fail(errors.New("down"))
		locks.Lose("k")
		require.ErrorIs(t, lease.Err(), mongolock.ErrLost)
	})
}

func TestEveryCallFailsUntilFailNil(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		lease, err := locks.Acquire(t.Context(), "mine")
		require.NoError(t, err)
		detached, err := locks.Acquire(t.Context(), "detached")
		require.NoError(t, err)
		ticket, err := detached.Detach(t.Context())
		require.NoError(t, err)

		down := fmt.Errorf("down (%w)", store.ErrNotApplied)
		locks.Fail(down)
		for name, call := range calls(t.Context(), locks, lease, ticket) {
			require.ErrorIs(t, call(), down, name)
		}
		require.NoError(t, lease.Err(), "a fault alone does not end a lease")

		locks.Fail(nil)
		for name, call := range calls(t.Context(), locks, lease, ticket) {
			require.NoError(t, call(), "%s after Fail(nil)", name)
		}
		require.NoError(t, lease.Release())
	})
}

// calls has one call of every method of a client that asks the store.
func calls(ctx context.Context, locks *mongolocktest.Locker, lease *mongolock.Lease, ticket string) map[string]func() error {
	release := func(lease *mongolock.Lease, err error) error {
		if err != nil {
			return err
		}
		return lease.Release()
	}
	return map[string]func() error{
		"Acquire":    func() error { return release(locks.Acquire(ctx, "a")) },
		"TryAcquire": func() error { return release(locks.TryAcquire(ctx, "b")) },
		"Inspect":    func() error { _, err := locks.Inspect(ctx, "mine"); return err },
		"Break":      func() error { _, err := locks.Break(ctx, "c", "why not", 0); return err },
		"Resume":     func() error { return release(locks.Resume(ctx, ticket)) },
		"Renew":      func() error { return lease.Renew(ctx) },
		"List": func() error {
			for _, err := range locks.List(ctx, "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func TestAFailedAcquireIsOfUnknownOutcomeUnlessTheErrorSaysOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		down := errors.New("down")
		locks.Fail(down)
		_, err := locks.Acquire(t.Context(), "k")
		require.ErrorIs(t, err, down)
		require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)

		locks.Fail(errors.Join(down, mongolock.ErrNotApplied))
		_, err = locks.Acquire(t.Context(), "another") // k still has a claim that is being cleaned up
		require.ErrorIs(t, err, down)
		require.ErrorIs(t, err, mongolock.ErrNotApplied)
		require.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
	})
}

func TestALeaseExpiresWhenTheStoreFailsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t, mongolock.TTL(10*time.Second))
		lease, err := locks.Acquire(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		locks.Fail(errors.New("down"))
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, lease.Err(), mongolock.ErrLost, "ten seconds later")
	})
}

func TestAWaiterSurvivesAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		release := locks.Hold("k")
		granted := make(chan error)
		go func() {
			granted <- mongolock.Do(t.Context(), locks, "k", func(context.Context, *mongolock.Lease) error { return nil })
		}()
		synctest.Wait()
		locks.Fail(errors.New("down"))
		release()
		time.Sleep(time.Minute)
		locks.Fail(nil)
		require.NoError(t, <-granted)
	})
}
