package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// within is a context that the real store would be given: it has a deadline.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func claimOf(key, id string) store.Claim {
	return store.Claim{Ref: store.Ref{Key: key, ID: id, Mode: store.Exclusive}, Limit: 1, TTL: time.Minute}
}

func holderOf(t testing.TB, s store.Store, key string) string {
	t.Helper()
	all, err := s.Look(within(t, time.Second), []string{key})
	if err != nil {
		t.Fatal(err)
	}
	if len(all[0].Holders) == 0 {
		return ""
	}
	return all[0].Holders[0].ID
}

func TestFaultsApplyWhatTheySay(t *testing.T) {
	long := time.Hour // longer than any caller waits
	for _, c := range []struct {
		name       string
		fault      Fault
		applied    bool
		notApplied bool // the error says so
		took       time.Duration
	}{
		{"Refused", Refused, false, true, 0},
		{"RequestLost", RequestLost, false, false, 0},
		{"ReplyLost", ReplyLost, true, false, 0},
		{"Unreachable", Unreachable, false, false, 0},
		{"Hang", Hang, false, false, 10 * time.Second},
		{"SlowToSend", Slow(long, 0), false, false, 10 * time.Second},
		{"SlowToAnswer", Slow(0, long), true, false, 10 * time.Second},
		{"Late", Late(0), true, false, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := NewFaulty(memstore.New())
				f.Next(1, c.fault)
				sent := time.Now()
				_, err := f.Acquire(within(t, 10*time.Second), claimOf("k", "id"))
				if took := time.Since(sent); took != c.took {
					t.Errorf("answered after %v, want %v", took, c.took)
				}
				if !errors.Is(err, ErrFault) || errors.Is(err, store.ErrNotApplied) != c.notApplied {
					t.Errorf("error: %v", err)
				}
				synctest.Wait()
				if applied := holderOf(t, f.Store, "k") == "id"; applied != c.applied {
					t.Errorf("applied: %v, want %v", applied, c.applied)
				}
			})
		})
	}
}

func TestASlowCallIsAnsweredInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		f.Next(1, Slow(2*time.Second, 3*time.Second))
		sent := time.Now()
		g, err := f.Acquire(within(t, 10*time.Second), claimOf("k", "id"))
		if err != nil || g.Since.Sub(sent) != 2*time.Second || time.Since(sent) != 5*time.Second {
			t.Errorf("granted after %v, answered after %v, %v", g.Since.Sub(sent), time.Since(sent), err)
		}
	})
}

func TestALateClaimLandsAfterItsCallerGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		f.Next(1, Late(5*time.Second), OpAcquire)
		c := claimOf("k", "late")
		if _, err := f.Acquire(within(t, time.Second), c); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Acquire: %v", err)
		}
		if settled, err := f.Undo(within(t, time.Second), c.Ref, nil); settled || err != nil {
			t.Errorf("Undo of a claim on its way: settled %v, %v", settled, err)
		}
		time.Sleep(4999 * time.Millisecond)
		if id := holderOf(t, f, "k"); id != "" || f.Late() != 1 {
			t.Errorf("landed too soon: %q, %d to come", id, f.Late())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if id := holderOf(t, f, "k"); id != "late" || f.Late() != 0 {
			t.Errorf("did not land: %q, %d to come", id, f.Late())
		}
		if settled, err := f.Undo(within(t, time.Second), c.Ref, nil); !settled || err != nil {
			t.Errorf("Undo of a claim that landed: settled %v, %v", settled, err)
		}
		if id := holderOf(t, f, "k"); id != "" {
			t.Errorf("still held by %q", id)
		}
	})
}

func TestAnUndoCanBarALateClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		f.Next(1, LateUnlessUndone(5*time.Second), OpAcquire)
		c := claimOf("k", "late")
		_, _ = f.Acquire(within(t, time.Second), c)
		if settled, err := f.Undo(within(t, time.Second), c.Ref, nil); !settled || err != nil {
			t.Errorf("Undo: settled %v, %v", settled, err)
		}
		time.Sleep(time.Minute)
		if id := holderOf(t, f, "k"); id != "" || f.Late() != 0 {
			t.Errorf("it landed: %q, %d to come", id, f.Late())
		}
	})
}

func TestUndoOfALateTransferTakesWhatItWasToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		from, to := claimOf("k", "from"), claimOf("k", "to")
		_, _ = f.Acquire(within(t, time.Second), from)
		f.Next(1, Late(time.Second), OpTransfer)
		_, _ = f.Transfer(within(t, time.Second), from.Ref, to)
		if settled, err := f.Undo(within(t, time.Second), to.Ref, &from.Ref); settled || err != nil {
			t.Errorf("Undo: settled %v, %v", settled, err)
		}
		if id := holderOf(t, f, "k"); id != "" {
			t.Errorf("still held by %q", id)
		}
		f.Land()
		if id := holderOf(t, f, "k"); id != "" || f.Late() != 0 {
			t.Errorf("the transfer took a key that was free: %q", id)
		}
		if settled, _ := f.Undo(within(t, time.Second), to.Ref, &from.Ref); !settled {
			t.Error("Undo is not settled though nothing is on its way")
		}
	})
}

func TestLandAppliesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		f.Next(1, Late(time.Second))
		ctx := within(t, time.Second)
		go f.Acquire(ctx, claimOf("k", "late"))
		synctest.Wait()
		f.Land() // before the caller gave up
		if id := holderOf(t, f, "k"); id != "late" {
			t.Errorf("holder: %q", id)
		}
		f.Store.Release(t.Context(), claimOf("k", "late").Ref, 0)
		time.Sleep(time.Minute)
		if id := holderOf(t, f, "k"); id != "" {
			t.Errorf("it landed again: %q", id)
		}
	})
}

func TestFaultsAreUsedInOrder(t *testing.T) {
	f := NewFaulty(memstore.New())
	answer := func(err error) Fault {
		return func(context.Context, *Call) error { return err }
	}
	one, two, three, older, newer := errors.New("1"), errors.New("2"), errors.New("3"), errors.New("older"), errors.New("newer")
	liftOlder := f.Until(answer(older))
	liftNewer := f.Until(answer(newer), OpRelease)
	f.Next(2, answer(one), OpRelease)
	f.Next(1, answer(two), OpRelease, OpBreak)
	f.Next(1, answer(three))
	f.Next(0, answer(errors.New("never")))

	release := func() error {
		_, err := f.Release(t.Context(), claimOf("k", "id").Ref, 0)
		return err
	}
	for i, want := range []error{one, one, two, three, newer, newer} {
		if err := release(); err != want {
			t.Errorf("release %d: %v, want %v", i, err, want)
		}
	}
	liftNewer()
	if err := release(); err != older {
		t.Errorf("after the newer was lifted: %v", err)
	}
	liftOlder()
	if err := release(); err != store.ErrGone {
		t.Errorf("after all were lifted: %v", err)
	}
	liftOlder() // again, which is harmless
}

func TestCallsAreCountedByKind(t *testing.T) {
	f := NewFaulty(memstore.New())
	f.Next(1, Refused)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { f.Look(t.Context(), []string{"k"}) })
		wg.Go(func() { f.Acquire(t.Context(), claimOf("k", "id")) })
	}
	wg.Wait()
	if look, acquire, all := f.Calls(OpLook), f.Calls(OpAcquire), f.Calls(); look != 10 || acquire != 10 || all != 20 {
		t.Errorf("%d looks, %d acquires, %d in all", look, acquire, all)
	}
	f.ResetCalls()
	if all := f.Calls(); all != 0 {
		t.Errorf("%d after a reset", all)
	}
}

func TestEveryCallFailsWhileTheStoreIsDown(t *testing.T) {
	f := NewFaulty(memstore.New())
	c := claimOf("k", "id")
	calls := func() map[Op]error {
		ctx := within(t, time.Second)
		_, acquire := f.Acquire(ctx, c)
		renew := f.Renew(ctx, []store.Renewal{{Ref: c.Ref, TTL: time.Minute}})
		_, transfer := f.Transfer(ctx, c.Ref, claimOf("k", "to"))
		_, release := f.Release(ctx, claimOf("k", "to").Ref, 0)
		_, undo := f.Undo(ctx, c.Ref, nil)
		_, look := f.Look(ctx, []string{"k"})
		errs := map[Op]error{
			OpAcquire: acquire, OpRenew: renew[0].Err, OpTransfer: transfer, OpRelease: release,
			OpUndo: undo, OpBreak: f.Break(ctx, c.Ref, "why", true), OpLook: look,
			OpNotify: f.Notify(ctx, store.Notice{}),
		}
		for _, err := range f.List(ctx, "") {
			errs[OpList] = err
		}
		for _, err := range f.Watch(ctx) {
			errs[OpWatch] = err
			break
		}
		return errs
	}
	up := f.Down()
	for op, err := range calls() {
		if !errors.Is(err, ErrFault) {
			t.Errorf("%s while down: %v", op, err)
		}
	}
	up()
	for op, err := range calls() {
		if errors.Is(err, ErrFault) {
			t.Errorf("%s after that: %v", op, err)
		}
	}
	for _, op := range []Op{OpAcquire, OpRenew, OpRelease, OpTransfer, OpUndo, OpBreak, OpLook, OpNotify, OpWatch} {
		if n := f.Calls(op); n != 2 {
			t.Errorf("%s was counted %d times", op, n)
		}
	}
}

func TestDownCutsTheWatchUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		var notices int
		var last error
		go func() {
			for _, err := range f.Watch(t.Context()) {
				if last = err; err == nil {
					notices++
				}
			}
		}()
		synctest.Wait()
		f.Notify(within(t, time.Second), store.Notice{Key: "k"})
		synctest.Wait()
		f.Down()
		synctest.Wait()
		if notices != 2 || !errors.Is(last, ErrFault) {
			t.Errorf("%d notices, then %v", notices, last)
		}
	})
}

func TestAFaultySendsTheFeedOfWhatItWraps(t *testing.T) {
	with, without := NewFaulty(memstore.New()), NewFaulty(struct{ store.Store }{})
	if store.FeedOf(with) != with || with.Unwrap() == nil {
		t.Error("the feed is found past the faults")
	}
	for _, err := range without.Watch(within(t, time.Second)) {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("watching a store without a feed: %v", err)
		}
	}
	if err := without.Notify(t.Context(), store.Notice{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("notifying a store without a feed: %v", err)
	}
}
