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

// renewalsFail makes every renewal fail with err.
func renewalsFail(b *bent, err error) {
	b.bend(func(h *hooks) {
		h.renew = func(_ context.Context, batch []store.Renewal, _ func() []store.Renewed) []store.Renewed {
			return allFail(batch, err)
		}
	})
}

func allFail(batch []store.Renewal, err error) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// slowRenewals lets every renewal take d, applied in the middle of it.
func slowRenewals(b *bent, d time.Duration) {
	b.bend(func(h *hooks) {
		h.renew = func(_ context.Context, _ []store.Renewal, do func() []store.Renewed) []store.Renewed {
			time.Sleep(d / 2)
			defer time.Sleep(d / 2)
			return do()
		}
	})
}

func TestARenewalThatFailsAndThenWorksLosesNothing(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		l := acquire(t, newClient(t, s), "k")
		for range 20 {
			renewalsFail(b, errNet)
			time.Sleep(18 * time.Second)
			b.bend(func(h *hooks) { h.renew = nil })
			time.Sleep(15 * time.Second)
			if l.Err() != nil {
				t.Fatal(l.Err())
			}
		}
	})
}

func TestLeaseIsLostBeforeItsTTLWhenRenewalsFail(t *testing.T) {
	hang := func(ctx context.Context, batch []store.Renewal, _ func() []store.Renewed) []store.Renewed {
		return allFail(batch, untilDone(ctx))
	}
	lateReply := func(_ context.Context, _ []store.Renewal, do func() []store.Renewed) []store.Renewed {
		time.Sleep(time.Hour) // heeds no context, and is not even applied before
		return do()
	}
	refuse := func(_ context.Context, batch []store.Renewal, _ func() []store.Renewed) []store.Renewed {
		return allFail(batch, errNet)
	}
	for name, renew := range map[string]func(context.Context, []store.Renewal, func() []store.Renewed) []store.Renewed{
		"hang": hang, "late": lateReply, "refuse": refuse,
	} {
		t.Run(name, func(t *testing.T) {
			onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
				start := time.Now()
				l := acquire(t, newClient(t, s), "k")
				ctx := l.Context(t.Context())
				b.bend(func(h *hooks) {
					h.renew = renew
					h.release = func(ctx context.Context, _ store.Ref, _ func() (bool, error)) (bool, error) {
						return false, untilDone(ctx)
					}
				})
				rival := inBackground(t.Context(), newClient(t, b.mem), "k")
				<-l.Done()
				tookBetween(t, start, 29*time.Second, 29*time.Second)
				<-ctx.Done()
				mustMatch(t, l.Err(), mongolock.ErrLost)
				mustMatch(t, context.Cause(ctx), mongolock.ErrLost)
				if r := <-rival; r.err != nil || r.when.Sub(start) < 30*time.Second || r.when.Sub(start) > 30*time.Second+50*time.Millisecond {
					t.Errorf("the rival: %v after %v", r.err, r.when.Sub(start))
				} else {
					time.Sleep(2 * time.Hour)
					mustMatch(t, l.Err(), mongolock.ErrLost)
					if r.lease.Err() != nil {
						t.Error("the late renewal disturbed the next holder:", r.lease.Err())
					}
				}
			})
		})
	}
}

func TestARenewalRacingTheReleaseRevivesNothing(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, time.Second, 5 * time.Second, 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := bend(memstore.New())
			b.bend(func(h *hooks) {
				h.renew = func(_ context.Context, _ []store.Renewal, do func() []store.Renewed) []store.Renewed {
					time.Sleep(late) // on its way while the lease is released
					defer time.Sleep(time.Second)
					return do()
				}
			})
			l := acquire(t, newClient(t, b), "k")
			time.Sleep(10*time.Second + late/2)
			release(t, l)
			next := acquire(t, newClient(t, b.mem), "k", mongolock.NoRenewal())
			granted := time.Now()
			time.Sleep(2 * time.Minute)
			mustMatch(t, l.Err(), mongolock.ErrReleased)
			if err := next.Err(); !errors.Is(err, mongolock.ErrLost) {
				t.Errorf("the next holder's end: %v", err)
			}
			if _, err := newClient(t, b.mem).TryAcquire(t.Context(), "k"); err != nil {
				t.Errorf("%v after: %v", time.Since(granted), err)
			}
		})
	}
}

func TestAThousandLeasesAreRenewedByOneCommandPerRound(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		var leases []*mongolock.Lease
		for i := range 1000 {
			leases = append(leases, acquire(t, c, fmt.Sprint(i)))
			time.Sleep(2 * time.Millisecond) // all within a sixth of the TTL
		}
		b.reset()
		time.Sleep(100 * time.Second)
		if n := b.count("renew"); n != 10 || b.total() != n {
			t.Errorf("%d renewals of %d commands in ten rounds", n, b.total())
		}
		for _, l := range leases {
			if l.Err() != nil {
				t.Fatal(l.Err())
			}
		}
	})
}

func TestABatchHasAtMostAThousandEntriesAndNamesEachOnce(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		for i := range 2500 {
			acquire(t, c, fmt.Sprint(i))
		}
		var mu sync.Mutex
		seen := make(map[string]int)
		b.bend(func(h *hooks) {
			h.renew = func(_ context.Context, batch []store.Renewal, do func() []store.Renewed) []store.Renewed {
				mu.Lock()
				defer mu.Unlock()
				if len(batch) > 1000 {
					t.Errorf("%d entries", len(batch))
				}
				for _, r := range batch {
					seen[r.ID]++
				}
				return do()
			}
		})
		time.Sleep(11 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(seen) != 2500 || b.count("renew") != 3 {
			t.Errorf("%d renewed by %d commands", len(seen), b.count("renew"))
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s renewed %d times", id, n)
			}
		}
	})
}

func TestAShortLeaseBesideALongOneIsNotLostOnASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		slowRenewals(b, 60*time.Millisecond)
		c := newClient(t, b)
		for i := range 20 {
			acquire(t, c, fmt.Sprint("long", i))
		}
		short := acquire(t, c, "short", mongolock.TTL(200*time.Millisecond))
		time.Sleep(10 * time.Minute)
		if short.Err() != nil {
			t.Error(short.Err())
		}
	})
}

func TestTheRenewalOfLongLeasesMayHangWithoutCostingTheShortOnesTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		b.bend(func(h *hooks) {
			h.renew = func(ctx context.Context, batch []store.Renewal, do func() []store.Renewed) []store.Renewed {
				if batch[0].TTL > time.Second {
					return allFail(batch, untilDone(ctx))
				}
				return do()
			}
		})
		c := newClient(t, b)
		long := acquire(t, c, "long")
		short := acquire(t, c, "short", mongolock.TTL(200*time.Millisecond))
		time.Sleep(time.Minute)
		mustMatch(t, long.Err(), mongolock.ErrLost)
		if short.Err() != nil {
			t.Error(short.Err())
		}
	})
}

func TestALeaseIsKeptWhenEveryRenewalTakesAsLongAsItMay(t *testing.T) {
	for _, ttl := range []time.Duration{200 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := bend(memstore.New())
			slowRenewals(b, ttl/3-time.Millisecond)
			l := acquire(t, newClient(t, b), "k", mongolock.TTL(ttl))
			time.Sleep(time.Hour)
			if l.Err() != nil {
				t.Errorf("TTL %v: %v", ttl, l.Err())
			}
		})
	}
}

func TestALeaseIsKeptWhenTheGrantWasSlowAndTheRenewalIs(t *testing.T) {
	for _, slow := range []time.Duration{time.Second, 4 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := bend(memstore.New())
			slowRenewals(b, 3*time.Second)
			b.bend(func(h *hooks) {
				h.acquire = func(_ context.Context, _ store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
					defer time.Sleep(slow)
					return do()
				}
			})
			l := acquire(t, newClient(t, b), "k", mongolock.TTL(10*time.Second))
			time.Sleep(time.Hour)
			if l.Err() != nil {
				t.Errorf("grant after %v: %v", slow, l.Err())
			}
		})
	}
}

func TestAShortLeftIsRenewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		l := acquire(t, newClient(t, b), "k")
		b.bend(func(h *hooks) {
			h.renew = func(_ context.Context, _ []store.Renewal, do func() []store.Renewed) []store.Renewed {
				answers := do()
				answers[0].Left = 5 * time.Second // all that a stale clock lets it promise
				return answers
			}
		})
		time.Sleep(time.Hour)
		if l.Err() != nil {
			t.Error(l.Err())
		}
	})
}

func TestManyRenewalsAtOnceGoOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		var mu sync.Mutex
		under := 0
		b.bend(func(h *hooks) {
			h.renew = func(_ context.Context, _ []store.Renewal, do func() []store.Renewed) []store.Renewed {
				mu.Lock()
				if under++; under > 1 {
					t.Error("two renewals of one lease under way")
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
				defer func() { mu.Lock(); under--; mu.Unlock() }()
				return do()
			}
		})
		l := acquire(t, newClient(t, b), "k")
		time.Sleep(10 * time.Second) // the keeper's own among them
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := l.Renew(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if l.Remaining() < 28*time.Second || b.count("renew") < 50 || b.count("renew") > 51 {
			t.Errorf("%v left after %d renewals", l.Remaining(), b.count("renew"))
		}
	})
}

func TestRenewLetsItsCallerGoAndGoesOn(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		l := acquire(t, newClient(t, s), "k", mongolock.NoRenewal())
		slowRenewals(b, 2*time.Second)
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mustMatch(t, l.Renew(ctx), context.DeadlineExceeded)
		time.Sleep(10 * time.Second)
		if l.Err() != nil {
			t.Error("the renewal was torn off:", l.Err())
		}
		time.Sleep(20 * time.Second)
		mustMatch(t, l.Err(), mongolock.ErrLost)
		mustMatch(t, l.Renew(t.Context()), mongolock.ErrLost)
	})
}
