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
