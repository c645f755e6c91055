package mongolock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

func detach(t *testing.T, l *mongolock.Lease) string {
	t.Helper()
	ticket, err := l.Detach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func TestDetachEndsTheLeaseHereWithoutFreeingTheKey(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		one, two := newClient(t, s), newClient(t, s)
		l := acquire(t, one, "k")
		ctx := l.Context(t.Context())
		time.Sleep(5 * time.Second)
		detached := time.Now()
		ticket := detach(t, l)
		<-ctx.Done()
		mustMatch(t, l.Err(), mongolock.ErrDetached)
		mustNotMatch(t, l.Err(), mongolock.ErrLost)
		mustMatch(t, l.Release(), mongolock.ErrDetached)
		if err := one.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(30*time.Second - 1)
		mustBeHeld(t, b, "k")

		resumed, err := two.Resume(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		if resumed.Token() != l.Token() || resumed.ID() == l.ID() || resumed.Key() != "k" {
			t.Errorf("token %d of %d, key %q", resumed.Token(), l.Token(), resumed.Key())
		}
		time.Sleep(time.Hour)
		if resumed.Err() != nil {
			t.Error(resumed.Err())
		}
		tookBetween(t, detached, time.Hour, 2*time.Hour)
		release(t, resumed)
		next := acquire(t, two, "k")
		if next.Token() <= resumed.Token() {
			t.Errorf("token %d after %d", next.Token(), resumed.Token())
		}
	})
}

func TestOfTwoThatResumeOneWins(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		ticket := detach(t, acquire(t, newClient(t, s), "k"))
		var mu sync.Mutex
		won := 0
		var wg sync.WaitGroup
		for range 10 {
			c := newClient(t, s)
			wg.Go(func() {
				l, err := c.Resume(t.Context(), ticket)
				switch {
				case err == nil && l != nil:
					mu.Lock()
					won++
					mu.Unlock()
				case l != nil || !errors.Is(err, mongolock.ErrLost) || errors.Is(err, mongolock.ErrOutcomeUnknown):
					t.Errorf("%v, %v", l, err)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d won", won)
		}
	})
}

func TestATicketIsWorthNothingAfterTheTTL(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		ticket := detach(t, acquire(t, c, "k"))
		time.Sleep(30 * time.Second)
		_, err := c.Resume(t.Context(), ticket)
		mustMatch(t, err, mongolock.ErrLost)
		acquire(t, c, "k")
		_, err = c.Resume(t.Context(), ticket)
		mustMatch(t, err, mongolock.ErrLost)
	})
}

func TestAResumeOfUnknownOutcomeThatNeverLandedLeavesTheTicketGood(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		l := acquire(t, c, "k")
		ticket := detach(t, l)
		b.bend(func(h *hooks) {
			h.transfer = func(context.Context, store.Claim, func() (store.Grant, error)) (store.Grant, error) {
				return store.Grant{}, errNet
			}
		})
		_, err := c.Resume(t.Context(), ticket)
		mustMatch(t, err, errNet, mongolock.ErrOutcomeUnknown)
		b.bend(func(h *hooks) { h.transfer = nil })
		time.Sleep(5 * time.Second) // the clean-up has been
		resumed, err := c.Resume(t.Context(), ticket)
		if err != nil || resumed.Token() != l.Token() {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if resumed.Err() != nil {
			t.Error(resumed.Err())
		}
	})
}

func TestAResumeWhoseReplyWasLostLeavesNothingBehind(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		ticket := detach(t, acquire(t, c, "k"))
		b.bend(func(h *hooks) {
			h.transfer = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				_, _ = do()
				return store.Grant{}, errNet
			}
		})
		_, err := c.Resume(t.Context(), ticket)
		mustMatch(t, err, mongolock.ErrOutcomeUnknown)
		time.Sleep(time.Second)
		mustBeFree(t, b, "k")
	})
}

func TestADetachThatFailsLeavesTheLeaseAsItWas(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		l := acquire(t, newClient(t, s), "k")
		renewalsFail(b, errNet)
		_, err := l.Detach(t.Context())
		mustMatch(t, err, errNet)
		b.bend(func(h *hooks) { h.renew = nil })
		time.Sleep(time.Hour)
		if l.Err() != nil {
			t.Error(l.Err())
		}
		release(t, l)
		_, err = l.Detach(t.Context())
		mustMatch(t, err, mongolock.ErrReleased)
	})
}

func TestBreakTellsTheHolderBeforeTheNextIsGranted(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		holder, rival, operator := newClient(t, s), newClient(t, s), newClient(t, s)
		l := acquire(t, holder, "k")
		ctx := l.Context(t.Context())
		wait := inBackground(t.Context(), rival, "k")
		time.Sleep(3 * time.Second)
		start := time.Now()
		told := make(chan time.Time, 1)
		go func() { <-ctx.Done(); told <- time.Now() }()
		broken, err := operator.Break(t.Context(), "k", "stuck since noon", 11*time.Second)
		if err != nil || len(broken) != 1 || broken[0].ID != l.ID() {
			t.Fatalf("%+v, %v", broken, err)
		}
		tookBetween(t, start, 7*time.Second, 11*time.Second)
		r := <-wait
		if r.err != nil {
			t.Fatal(r.err)
		}
		if gap := r.when.Sub(<-told); gap < time.Second {
			t.Errorf("told %v before the next was granted", gap)
		}
		mustMatch(t, l.Err(), mongolock.ErrBroken, mongolock.ErrLost)
		mustMatch(t, context.Cause(ctx), mongolock.ErrBroken)
		if want := "stuck since noon"; !strings.Contains(l.Err().Error(), want) {
			t.Errorf("%q does not tell the reason", l.Err())
		}
		time.Sleep(time.Hour)
		if r.lease.Err() != nil {
			t.Error("the break hit the next holder:", r.lease.Err())
		}
	})
}

func TestBreakFreesAKeyWhoseHolderDoesNotListen(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		l := acquire(t, newClient(t, s), "k", mongolock.TTL(time.Hour))
		renewalsFail(b, errNet)
		operator := newClient(t, b.mem)
		wait := inBackground(t.Context(), operator, "k")
		synctest.Wait()
		start := time.Now()
		if _, err := operator.Break(t.Context(), "k", "why", 5*time.Second); err != nil {
			t.Fatal(err)
		}
		tookBetween(t, start, 5*time.Second, 5*time.Second)
		if r := <-wait; r.err != nil {
			t.Error(r.err)
		}
		tookBetween(t, start, 5*time.Second, 5100*time.Millisecond)
		b.bend(func(h *hooks) { h.renew = nil })
		mustMatch(t, l.Renew(t.Context()), mongolock.ErrLost)
	})
}

func TestBreakWithNegativeGraceRemovesNothing(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		dead := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: time.Minute}
		if _, err := b.mem.Acquire(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		c := newClient(t, s)
		broken, err := c.Break(t.Context(), "k", "why", -1)
		if err != nil || len(broken) != 1 {
			t.Fatal(broken, err)
		}
		time.Sleep(time.Minute - 1)
		mustBeHeld(t, b, "k")
		time.Sleep(time.Nanosecond)
		if broken, err = c.Break(t.Context(), "k", "why", 0); err != nil || len(broken) != 0 {
			t.Error("broke a free key:", broken, err)
		}
		acquire(t, c, "k")
	})
}
