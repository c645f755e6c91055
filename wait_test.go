package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestAWaiterGetsTheKeySoonAfterTheRelease(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		one, two := newClient(t, s), newClient(t, s)
		for name, rival := range map[string]*mongolock.Client{"the same client": one, "another": two} {
			l := acquire(t, one, "k")
			wait := inBackground(t.Context(), rival, "k")
			time.Sleep(100 * time.Second)
			if len(wait) != 0 {
				t.Errorf("%s: granted while held", name)
			}
			start := time.Now()
			release(t, l)
			r := <-wait
			if r.err != nil || r.lease.Token() <= l.Token() {
				t.Fatalf("%s: %v", name, r.err)
			}
			tookBetween(t, start, 0, 0)
			release(t, r.lease)
		}
	})
}

func TestAWaiterGetsTheKeySoonAfterTheHoldersDeath(t *testing.T) {
	for _, feed := range []bool{true, false} {
		onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
			var opts []mongolock.ClientOption
			if !feed {
				opts = append(opts, mongolock.WithoutFeed())
			}
			dead := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: 20 * time.Second}
			if _, err := b.mem.Acquire(t.Context(), dead); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			acquire(t, newClient(t, s, opts...), "k")
			tookBetween(t, start, 20*time.Second, 20*time.Second+50*time.Millisecond)
		})
	}
}

func TestTheEndOfAWaitMatchesItsContextAndHeld(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		one, two := newClient(t, s, mongolock.WithOwner("the holder")), newClient(t, s)
		acquire(t, one, "k")
		cause := errors.New("lost interest")
		for name, rival := range map[string]*mongolock.Client{"the same client": one, "another": two} {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
			_, err := rival.Acquire(ctx, "k")
			cancel()
			tookBetween(t, start, 7*time.Second, 7*time.Second)
			mustMatch(t, err, context.DeadlineExceeded, mongolock.ErrHeld)
			mustNotMatch(t, err, mongolock.ErrOutcomeUnknown)

			ctx, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { stop(cause) })
			_, err = rival.Acquire(ctx, "k")
			mustMatch(t, err, context.Canceled, cause, mongolock.ErrHeld)
			var held *mongolock.HeldError
			if !errors.As(err, &held) || held.Holders[0].Owner != "the holder" || held.Left() <= 0 {
				t.Errorf("%s: told %v", name, err)
			}

			start = time.Now()
			_, err = rival.Acquire(t.Context(), "k", mongolock.MaxWait(3*time.Second))
			tookBetween(t, start, 3*time.Second, 3*time.Second)
			mustMatch(t, err, mongolock.ErrHeld)
			mustNotMatch(t, err, context.DeadlineExceeded)
		}
	})
}

func TestACancelOfATryHasNoUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		b.bend(func(h *hooks) {
			h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				time.Sleep(time.Second)
				defer time.Sleep(time.Second)
				return do()
			}
		})
		c := newClient(t, b)
		for name, ask := range map[string]func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error){
			"try": c.TryAcquire, "wait": c.Acquire,
		} {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			l, err := ask(ctx, "k")
			cancel()
			tookBetween(t, start, 1500*time.Millisecond, 1500*time.Millisecond)
			if l != nil || errors.Is(err, mongolock.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, %v", name, l, err)
			}
			mustBeHeld(t, b, "k")
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			mustBeFree(t, b, "k") // given back the moment the grant came
			if b.count("undo") != 0 {
				t.Errorf("%s: undone", name)
			}
		}
	})
}

func TestMaxWaitIsKeptThoughTheStoreIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		acquire(t, newClient(t, b.mem), "k")
		c := newClient(t, b, mongolock.WithoutFeed())
		wait := make(chan result, 1)
		start := time.Now()
		go func() {
			l, err := c.Acquire(context.WithoutCancel(t.Context()), "k", mongolock.MaxWait(35*time.Second))
			wait <- result{l, err, time.Now()}
		}()
		synctest.Wait()
		b.bend(func(h *hooks) { // it looks again when the holder should have run out, and hangs
			h.acquire = func(ctx context.Context, _ store.Claim, _ func() (store.Grant, error)) (store.Grant, error) {
				return store.Grant{}, untilDone(ctx)
			}
			h.look = func(ctx context.Context, _ []string, _ func() ([]store.Status, error)) ([]store.Status, error) {
				return nil, untilDone(ctx)
			}
		})
		r := <-wait
		mustMatch(t, r.err, mongolock.ErrHeld)
		tookBetween(t, start, 35*time.Second, 35*time.Second)
	})
}

func TestWaitersOfOneClientAreServedInOrderOfArrival(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		l := acquire(t, c, "k")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				l, err := c.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				release(t, l)
			})
			synctest.Wait()
		}
		release(t, l)
		wg.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("served in the order %v", order)
			}
		}
	})
}

// contend lets n contenders share a key's critical section, and reports how many
// were inside at once at most.
func contend(t *testing.T, n int, section time.Duration, client func(i int) *mongolock.Client) (most int) {
	t.Helper()
	var mu sync.Mutex
	inside := 0
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			err := mongolock.Do(t.Context(), client(i), "k", func(context.Context, *mongolock.Lease) error {
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				time.Sleep(section)
				mu.Lock()
				inside--
				mu.Unlock()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return most
}

func TestAHundredContendersAreAllServedOneAtATime(t *testing.T) {
	for _, clients := range []int{1, 4, 100} {
		t.Run(fmt.Sprint(clients, " clients"), func(t *testing.T) {
			onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
				var all []*mongolock.Client
				for range clients {
					all = append(all, newClient(t, s))
				}
				start := time.Now()
				most := contend(t, 100, 10*time.Millisecond, func(i int) *mongolock.Client { return all[i%clients] })
				if most != 1 {
					t.Errorf("%d inside at once", most)
				}
				tookBetween(t, start, time.Second, 10*time.Second)
			})
		})
	}
}

func TestOfManyTriesOnANewKeyOneWins(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		oneWins(t, s)
	})
}

func TestOfManyTriesOnAnExpiredKeyOneWins(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		dead := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: time.Second}
		if _, err := b.mem.Acquire(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		oneWins(t, s)
	})
}

func oneWins(t *testing.T, s store.Store) {
	t.Helper()
	var mu sync.Mutex
	won := 0
	var wg sync.WaitGroup
	for range 20 {
		c := newClient(t, s)
		wg.Go(func() {
			l, err := c.TryAcquire(t.Context(), "k")
			switch {
			case err == nil && l != nil:
				mu.Lock()
				won++
				mu.Unlock()
			case l != nil || !errors.Is(err, mongolock.ErrHeld):
				t.Errorf("%v, %v", l, err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d winners", won)
	}
}
