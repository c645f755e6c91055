package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestReleaseAfterALossReportsItAndNeverFreesALaterHolder(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		l := acquire(t, newClient(t, s), "k")
		renewalsFail(b, errNet)
		next := acquire(t, newClient(t, b.mem), "k")
		mustMatch(t, l.Err(), mongolock.ErrLost)
		for range 3 {
			mustMatch(t, l.Release(), mongolock.ErrLost)
		}
		time.Sleep(time.Hour)
		if next.Err() != nil {
			t.Error(next.Err())
		}
	})
}

func TestALostLeaseIsGivenBackOneMarginAfterItsEnd(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		l := acquire(t, newClient(t, s), "k", mongolock.NoRenewal())
		time.Sleep(20 * time.Second)
		if err := l.Renew(t.Context()); err != nil { // the store would honour it until 50 s
			t.Fatal(err)
		}
		b.mem.Break(t.Context(), store.Ref{Key: "k", ID: l.ID(), Mode: store.Exclusive}, "why", false)
		mustMatch(t, l.Renew(t.Context()), mongolock.ErrBroken)
		lost := time.Now()
		synctest.Wait()
		mustBeHeld(t, b, "k")
		time.Sleep(time.Second - 1)
		mustBeHeld(t, b, "k")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		mustBeFree(t, b, "k")
		tookBetween(t, lost, time.Second, time.Second)
	})
}

func TestReleasesFromManyGoroutinesAgree(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		b.bend(func(h *hooks) {
			h.release = func(_ context.Context, _ store.Ref, do func() (bool, error)) (bool, error) {
				time.Sleep(time.Second)
				return do()
			}
		})
		l := acquire(t, newClient(t, s), "k")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { release(t, l) })
		}
		wg.Wait()
		if b.count("release") != 1 {
			t.Errorf("%d commands", b.count("release"))
		}
		mustBeFree(t, b, "k")
	})
}

func TestAReleaseThatFailsOnTheNetworkCanBeRepeatedAndIsRetried(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied ", applied), func(t *testing.T) {
			onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
				fail := func(_ context.Context, _ store.Ref, do func() (bool, error)) (bool, error) {
					if applied {
						_, _ = do()
					}
					return false, errNet
				}
				c := newClient(t, s)
				b.bend(func(h *hooks) { h.release = fail })
				l := acquire(t, c, "k")
				err := l.Release()
				mustMatch(t, err, errNet, mongolock.ErrOutcomeUnknown)
				mustNotMatch(t, err, mongolock.ErrLost)
				mustMatch(t, l.Release(), errNet)
				b.bend(func(h *hooks) { h.release = nil })
				release(t, l)
				mustBeFree(t, b, "k")

				b.bend(func(h *hooks) { h.release = fail })
				l = acquire(t, c, "k2")
				mustMatch(t, l.Release(), errNet)
				time.Sleep(5 * time.Second)
				b.bend(func(h *hooks) { h.release = nil })
				time.Sleep(6 * time.Second)
				mustBeFree(t, b, "k2")
				release(t, l)
			})
		})
	}
}

func TestARetriedReleaseStopsOnceTheTTLIsOver(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		b.bend(func(h *hooks) {
			h.release = func(context.Context, store.Ref, func() (bool, error)) (bool, error) { return false, errNet }
		})
		l := acquire(t, newClient(t, s), "k")
		mustMatch(t, l.Release(), errNet)
		time.Sleep(40 * time.Second)
		b.reset()
		release(t, l) // it ran out: nothing of it is left
		time.Sleep(time.Hour)
		if b.total() != 0 {
			t.Errorf("%d commands", b.total())
		}
	})
}

func TestReleaseTakesAtMostFiveSeconds(t *testing.T) {
	for name, cut := range map[string]func(*hooks){
		"hanging": func(h *hooks) {
			h.transfer = func(ctx context.Context, _ store.Claim, _ func() (store.Grant, error)) (store.Grant, error) {
				return store.Grant{}, errors.Join(untilDone(ctx), store.ErrNotApplied)
			}
			h.release = func(ctx context.Context, _ store.Ref, _ func() (bool, error)) (bool, error) {
				return false, untilDone(ctx)
			}
		},
		"no server to send it to": func(h *hooks) {
			h.transfer = func(ctx context.Context, _ store.Claim, _ func() (store.Grant, error)) (store.Grant, error) {
				return store.Grant{}, errors.Join(untilDone(ctx), store.ErrNotApplied)
			}
			h.release = func(ctx context.Context, _ store.Ref, _ func() (bool, error)) (bool, error) {
				return false, errors.Join(untilDone(ctx), store.ErrNotApplied)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			whereCallsMayBlock(t, func(t *testing.T, b *bent, s store.Store) {
				c := newClient(t, s)
				l := acquire(t, c, "k")
				waiter := inBackground(t.Context(), c, "k")
				synctest.Wait()
				b.bend(cut)
				start := time.Now()
				if l.Release() == nil {
					t.Error("released by a store that hangs")
				}
				tookBetween(t, start, time.Second, 5*time.Second)
				b.bend(func(h *hooks) { *h = hooks{} })
				if r := <-waiter; r.err != nil {
					t.Error(r.err)
				}
			})
		})
	}
}

func TestReleaseOfAKeyTakenAwayByHandReportsTheLoss(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		l := acquire(t, newClient(t, s), "k")
		b.mem.Delete("k")
		mustMatch(t, l.Release(), mongolock.ErrLost)
		mustMatch(t, l.Release(), mongolock.ErrLost)
	})
}

func TestMinHoldIsOverForAReleaseThatComesLater(t *testing.T) {
	onBothPaths(t, func(t *testing.T, b *bent, s store.Store) {
		c := newClient(t, s)
		l := acquire(t, c, "k", mongolock.MinHold(20*time.Second))
		wait := inBackground(t.Context(), c, "k")
		time.Sleep(21 * time.Second)
		release(t, l)
		r := <-wait
		if r.err != nil {
			t.Fatal(r.err)
		}
		tookBetween(t, r.when, 0, 0)
		release(t, r.lease)
		mustBeFree(t, b, "k")
	})
}

// A handler that blocks is a log line on its way through a full pipe.
type slowLog struct {
	slog.Handler
	begun chan struct{}
}

func (s slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (s slowLog) Handle(context.Context, slog.Record) error {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	time.Sleep(300 * time.Millisecond)
	return nil
}

func TestCloseInTheMomentOfALossStillLeavesTheMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		log := slowLog{slog.DiscardHandler, make(chan struct{}, 1)}
		c := newClient(t, b, mongolock.WithLogger(slog.New(log)), mongolock.WithMargin(2*time.Second))
		l := acquire(t, c, "k", mongolock.MaxHold(10*time.Second))
		<-l.Done()
		lost := time.Now()
		<-log.begun
		go c.Close()
		acquire(t, newClient(t, b.mem), "k")
		tookBetween(t, lost, 2*time.Second, 3*time.Second)
	})
}
