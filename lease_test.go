package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestAFreeKeyIsGrantedInOneCommand(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s, mongolock.WithOwner("me"))
		start := time.Now()
		l := acquire(t, c, "k", mongolock.Note("why"))
		if b.total() != 1 || !time.Now().Equal(start) {
			t.Errorf("%d commands, %v", b.total(), time.Since(start))
		}
		status, err := c.Inspect(t.Context(), "k")
		if err != nil || len(status.Holders) != 1 {
			t.Fatalf("%+v, %v", status, err)
		}
		h := status.Holders[0]
		if h.Owner != "me" || h.Note != "why" || h.ID != l.ID() || h.ExpireAt.Sub(status.Now) != 30*time.Second {
			t.Errorf("holder %+v at %v", h, status.Now)
		}
		if l.Err() != nil || l.Remaining() != 29*time.Second || l.Key() != "k" {
			t.Errorf("lease %v: %v, %v left", l.Key(), l.Err(), l.Remaining())
		}
	})
}

func TestASecondTryIsRefusedAtOnceAndToldByWhom(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s, mongolock.WithOwner("first"))
		l := acquire(t, c, "k")
		time.Sleep(3 * time.Second)
		for name, rival := range map[string]*mongolock.Client{"same client": c, "another": newClient(t, s)} {
			start := time.Now()
			l2, err := rival.TryAcquire(t.Context(), "k")
			var held *mongolock.HeldError
			if l2 != nil || !errors.As(err, &held) {
				t.Fatalf("%s: %v, %v", name, l2, err)
			}
			mustMatch(t, err, mongolock.ErrHeld)
			if held.Holders[0].Owner != "first" || held.Left() != 27*time.Second || held.Key != "k" {
				t.Errorf("%s: told %+v", name, held.Status)
			}
			tookBetween(t, start, 0, 0)
		}
		if l.Err() != nil {
			t.Error("the holder was disturbed:", l.Err())
		}
	})
}

func TestKeysDoNotAffectEachOther(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		var leases []*mongolock.Lease
		for _, key := range []string{"A", "a", "a.b", "$x", " ", "\x00", "🔒", "x/y"} {
			leases = append(leases, acquire(t, c, key))
		}
		release(t, leases[0])
		for _, l := range leases[1:] {
			mustBeHeld(t, b, l.Key())
		}
		mustBeFree(t, b, "A")
	})
}

func TestReleaseFreesAtOnceTenTimesInARow(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		one, two := newClient(t, s), newClient(t, s)
		start := time.Now()
		for range 10 {
			release(t, acquire(t, one, "k"))
			l, err := two.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			release(t, l)
			for range two.List(t.Context(), "") {
				t.Fatal("a record was left")
			}
		}
		tookBetween(t, start, 0, 0)
	})
}

func TestAContextAlreadyDoneSendsNothing(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		l := acquire(t, c, "held")
		b.reset()
		cause := errors.New("tired")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		_, errAcquire := c.Acquire(ctx, "k")
		_, errTry := c.TryAcquire(ctx, "k")
		_, errInspect := c.Inspect(ctx, "k")
		_, errBreak := c.Break(ctx, "k", "why", 0)
		_, errDetach := l.Detach(ctx)
		for i, err := range []error{errAcquire, errTry, errInspect, errBreak, errDetach, l.Renew(ctx)} {
			if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if b.total() != 0 {
			t.Errorf("%d commands", b.total())
		}
	})
}

func TestALeaseOutlivesManyTTLsAndKeepsItsToken(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		l := acquire(t, newClient(t, s), "k", mongolock.TTL(time.Second))
		token := l.Token()
		for range 1000 {
			time.Sleep(100 * time.Millisecond)
			if l.Err() != nil || l.Remaining() <= 0 || l.Token() != token {
				t.Fatal(l.Err(), l.Remaining(), l.Token())
			}
			mustBeHeld(t, b, "k")
		}
		release(t, l)
	})
}

func TestALeaseOfThirtySecondsIsHeldForTwoDays(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		l := acquire(t, c, "k")
		time.Sleep(48*time.Hour + time.Second) // not in the moment of a renewal, which may be under way then
		if l.Err() != nil {
			t.Fatal(l.Err())
		}
		// One renewal every third of the TTL, and nothing else.
		if n := b.count("renew"); n < 17_279 || n > 17_281 || b.total() != n+1 {
			t.Errorf("%d renewals of %d commands in 48 h", n, b.total())
		}
		release(t, l)
		b.reset()
		time.Sleep(time.Hour)
		if b.total() != 0 {
			t.Errorf("%d commands in the hour after the release", b.total())
		}
	})
}

func TestALeaseNotRenewedIsRefusedJustBeforeItsEndAndGrantedJustAfter(t *testing.T) {
	for _, shift := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("server clock ", shift), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(shift) }))
				down := bend(mem) // the holder's way to the store: cut after the grant
				one, two := newClient(t, down), newClient(t, mem)
				l := acquire(t, one, "k", mongolock.NoRenewal(), mongolock.TTL(10*time.Second))
				down.bend(func(h *hooks) {
					h.release = func(context.Context, store.Ref, func() (bool, error)) (bool, error) { return false, errNet }
				})
				time.Sleep(9 * time.Second)
				if !isOver(l.Done()) {
					t.Error("not told one margin before the end")
				}
				time.Sleep(time.Second - time.Nanosecond)
				if _, err := two.TryAcquire(t.Context(), "k"); !errors.Is(err, mongolock.ErrHeld) {
					t.Errorf("just before: %v", err)
				}
				time.Sleep(time.Nanosecond)
				l2, err := two.TryAcquire(t.Context(), "k")
				if err != nil || l2.Token() <= l.Token() {
					t.Fatalf("just after: %v, %v", l2, err)
				}
				time.Sleep(time.Minute) // the give-back of the first comes again and again
				if l2.Err() != nil {
					t.Error("the first one's clean-up hit the second:", l2.Err())
				}
			})
		})
	}
}

func TestNeighboursWithWrongClocksExcludeEachOther(t *testing.T) {
	for _, shift := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(shift) }))
			one, two := newClient(t, mem), newClient(t, mem)
			l := acquire(t, one, "k", mongolock.TTL(time.Second))
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(time.Minute)
			if l.Err() != nil || len(wait) != 0 {
				t.Errorf("shift %v: holder %v, rival served: %d", shift, l.Err(), len(wait))
			}
			release(t, l)
			if r := <-wait; r.err != nil {
				t.Error(r.err)
			} else {
				tookBetween(t, r.when, 0, 0)
			}
		})
	}
}

func TestAKeyDeletedByHandIsFreeAndItsHolderLearnsAtTheNextRenewal(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		one, two := newClient(t, s), newClient(t, s)
		l := acquire(t, one, "k")
		b.mem.Delete("k")
		l2 := acquire(t, two, "k")
		if l2.Token() <= l.Token() {
			t.Errorf("token %d after %d", l2.Token(), l.Token())
		}
		time.Sleep(10*time.Second + time.Millisecond)
		mustMatch(t, l.Err(), mongolock.ErrLost)
		mustMatch(t, l.Release(), mongolock.ErrLost)
		if l2.Err() != nil {
			t.Error(l2.Err())
		}
		mustBeHeld(t, b, "k")
	})
}

func TestStartingClientsTouchesNobodysLock(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		l := acquire(t, newClient(t, s), "k")
		b.reset()
		for range 50 {
			newClient(t, s)
		}
		if b.total() != 0 || l.Err() != nil {
			t.Errorf("%d commands, holder %v", b.total(), l.Err())
		}
	})
}

func TestMaxHoldEndsALeaseThatWouldRenewForEver(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		l := acquire(t, c, "k", mongolock.TTL(10*time.Second), mongolock.MaxHold(25*time.Second))
		ctx := l.Context(t.Context())
		wait := inBackground(t.Context(), newClient(t, s), "k")
		time.Sleep(25*time.Second - 1)
		if l.Err() != nil || l.Remaining() != 1 {
			t.Error("ended early:", l.Err(), l.Remaining())
		}
		time.Sleep(time.Nanosecond)
		if !isOver(ctx.Done()) {
			t.Error("the context goes on")
		}
		mustMatch(t, l.Err(), mongolock.ErrMaxHold, mongolock.ErrLost)
		mustMatch(t, context.Cause(ctx), mongolock.ErrMaxHold)
		ended := time.Now()
		if r := <-wait; r.err != nil {
			t.Error(r.err)
		} else if gap := r.when.Sub(ended); gap < time.Second || gap > 1100*time.Millisecond {
			t.Errorf("the next holder came %v after the end, want a margin", gap)
		}
		mustMatch(t, l.Release(), mongolock.ErrMaxHold)
	})
}

func TestALeaseWithALongMaxHoldSurvivesASlowGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		b.bend(func(h *hooks) {
			h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
				g, err := do()
				time.Sleep(6 * time.Second)
				return g, err
			}
		})
		l := acquire(t, newClient(t, b), "k", mongolock.TTL(10*time.Second), mongolock.MaxHold(time.Hour))
		time.Sleep(time.Minute)
		if l.Err() != nil {
			t.Error(l.Err())
		}
	})
}
