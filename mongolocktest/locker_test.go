package mongolocktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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

func TestHeldKeyIsRefusedUntilItsHolderReleases(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		release := locks.Hold("k")
		_, err := locks.TryAcquire(t.Context(), "k")
		if held, ok := errors.AsType[*mongolock.HeldError](err); !ok || held.Holders[0].Owner != "somebody else" {
			t.Errorf("TryAcquire of a held key: %v", err)
		}
		release()
		release() // as often as one likes
		lease, err := locks.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatalf("TryAcquire after the release: %v", err)
		}
		_ = lease.Release()
	})
}

func TestWaiterGetsAHeldKeyWhenItIsReleased(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		release := locks.Hold("k")
		done := make(chan error)
		go func() {
			done <- mongolock.Do(t.Context(), locks, "k", func(context.Context, *mongolock.Lease) error { return nil })
		}()
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestHeldKeyStaysHeldForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		locks.Hold("k")
		time.Sleep(24 * time.Hour)
		if _, err := locks.TryAcquire(t.Context(), "k"); !errors.Is(err, mongolock.ErrHeld) {
			t.Errorf("a day later: %v", err)
		}
	})
}

func TestLostLeaseHasEndedWhenLoseReturns(t *testing.T) {
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
				if err != nil {
					t.Fatal(err)
				}
				ctx := lease.Context(t.Context())
				locks.Lose("k")
				if !errors.Is(lease.Err(), mongolock.ErrLost) || ctx.Err() == nil {
					t.Errorf("lease %v, its context %v", lease.Err(), ctx.Err())
				}
				<-lease.Done()
				locks.Hold("k") // free at once
				if err := lease.Release(); !errors.Is(err, mongolock.ErrLost) {
					t.Errorf("Release of the lost lease: %v", err)
				}
				if _, err := locks.TryAcquire(t.Context(), "k"); !errors.Is(err, mongolock.ErrHeld) {
					t.Errorf("the next holder was touched: %v", err)
				}
			})
		})
	}
}

func TestLoseFindsLeasesHoweverTheyCame(t *testing.T) {
	ways := map[string]func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error){
		"Acquire": func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error) {
			return locks.Acquire(ctx, "k")
		},
		"TryAcquire": func(ctx context.Context, locks *mongolocktest.Locker) (*mongolock.Lease, error) {
			return locks.TryAcquire(ctx, "k")
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
			if err != nil {
				t.Fatal(err)
			}
			other, err := locks.Acquire(t.Context(), "other")
			if err != nil {
				t.Fatal(err)
			}
			locks.Lose("k")
			if err := lease.Err(); !errors.Is(err, mongolock.ErrLost) {
				t.Errorf("lease: %v", err)
			}
			if err := other.Release(); err != nil {
				t.Errorf("the lease on another key: %v", err)
			}
		})
	}
}

func TestLoseUnderDoReachesItsCaller(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		err := mongolock.Do(t.Context(), locks, "k", func(ctx context.Context, _ *mongolock.Lease) error {
			locks.Lose("k")
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, mongolock.ErrLost) || !errors.Is(err, context.Canceled) {
			t.Errorf("Do: %v", err)
		}
	})
}

func TestLoseWorksWhileTheStoreFails(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		lease, err := locks.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		locks.Fail(errors.New("down"))
		locks.Lose("k")
		if err := lease.Err(); !errors.Is(err, mongolock.ErrLost) {
			t.Errorf("lease: %v", err)
		}
	})
}

func TestEveryCallFailsUntilFailNil(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		lease, err := locks.Acquire(t.Context(), "mine")
		if err != nil {
			t.Fatal(err)
		}
		detached, err := locks.Acquire(t.Context(), "detached")
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := detached.Detach(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		down := fmt.Errorf("down (%w)", store.ErrNotApplied)
		locks.Fail(down)
		for name, call := range calls(t.Context(), locks, lease, ticket) {
			if err := call(); !errors.Is(err, down) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if lease.Err() != nil {
			t.Errorf("a lease is not lost by a fault: %v", lease.Err())
		}

		locks.Fail(nil)
		for name, call := range calls(t.Context(), locks, lease, ticket) {
			if err := call(); err != nil {
				t.Errorf("%s, the store being well again: %v", name, err)
			}
		}
		if err := lease.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// calls is one call of every method of a client that asks the store.
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

func TestFailedAcquireIsOfUnknownOutcomeUnlessSaidOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		down := errors.New("down")
		locks.Fail(down)
		if _, err := locks.Acquire(t.Context(), "k"); !errors.Is(err, mongolock.ErrOutcomeUnknown) || !errors.Is(err, down) {
			t.Errorf("a fault that may have been applied: %v", err)
		}
		locks.Fail(errors.Join(down, store.ErrNotApplied))
		if _, err := locks.Acquire(t.Context(), "k"); errors.Is(err, mongolock.ErrOutcomeUnknown) || !errors.Is(err, down) {
			t.Errorf("a fault that left no trace: %v", err)
		}
	})
}

func TestLeaseRunsOutWhenTheStoreFailsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t, mongolock.TTL(10*time.Second))
		lease, err := locks.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		locks.Fail(errors.New("down"))
		time.Sleep(10 * time.Second)
		if err := lease.Err(); !errors.Is(err, mongolock.ErrLost) {
			t.Errorf("ten seconds later: %v", err)
		}
	})
}

func TestWaiterRidesOutAFailure(t *testing.T) {
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
		if err := <-granted; err != nil {
			t.Error(err)
		}
	})
}
