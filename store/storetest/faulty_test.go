package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// within returns a context with a deadline, as the engine gives a store.
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
	require.NoError(t, err)
	if len(all[0].Holders) == 0 {
		return ""
	}
	return all[0].Holders[0].ID
}

// undone undoes a claim and reports whether that is settled.
func undone(t testing.TB, f *Faulty, claim store.Ref, from *store.Ref) bool {
	t.Helper()
	settled, err := f.Undo(within(t, time.Second), claim, from)
	require.NoError(t, err)
	return settled
}

func TestEachFaultAppliesTheCallOrNotAsDocumented(t *testing.T) {
	long := time.Hour // longer than any caller waits
	for _, c := range []struct {
		name       string
		fault      Fault
		applied    bool
		notApplied bool // the error matches store.ErrNotApplied
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
				assert.Equal(t, c.took, time.Since(sent), "the time until the answer")
				require.ErrorIs(t, err, ErrFault)
				assert.Equal(t, c.notApplied, errors.Is(err, store.ErrNotApplied), "%v matches ErrNotApplied", err)
				synctest.Wait()
				assert.Equal(t, c.applied, holderOf(t, f.Store, "k") == "id", "applied")
			})
		})
	}
}

func TestASlowCallIsAppliedAndAnsweredAfterItsDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		f.Next(1, Slow(2*time.Second, 3*time.Second))
		sent := time.Now()
		g, err := f.Acquire(within(t, 10*time.Second), claimOf("k", "id"))
		require.NoError(t, err)
		assert.Equal(t, 2*time.Second, g.Since.Sub(sent), "granted after")
		assert.Equal(t, 5*time.Second, time.Since(sent), "answered after")
	})
}

func TestALateClaimIsAppliedAfterItsCallerGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		f.Next(1, Late(5*time.Second), OpAcquire)
		c := claimOf("k", "late")
		_, err := f.Acquire(within(t, time.Second), c)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.False(t, undone(t, f, c.Ref, nil), "Undo is settled while the claim is on its way")

		time.Sleep(4999 * time.Millisecond)
		assert.Empty(t, holderOf(t, f, "k"), "applied too soon")
		assert.Equal(t, 1, f.Late())

		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, "late", holderOf(t, f, "k"), "the claim was not applied")
		assert.Zero(t, f.Late())
		assert.True(t, undone(t, f, c.Ref, nil), "Undo of an applied claim is settled")
		assert.Empty(t, holderOf(t, f, "k"), "Undo left the claim")
	})
}

func TestAnUndoCanPreventALateClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		f.Next(1, LateUnlessUndone(5*time.Second), OpAcquire)
		c := claimOf("k", "late")
		_, _ = f.Acquire(within(t, time.Second), c)
		assert.True(t, undone(t, f, c.Ref, nil), "settled")
		time.Sleep(time.Minute)
		assert.Empty(t, holderOf(t, f, "k"), "the claim was applied after its Undo")
		assert.Zero(t, f.Late())
	})
}

func TestAnUndoOfALateTransferRemovesItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		from, to := claimOf("k", "from"), claimOf("k", "to")
		_, _ = f.Acquire(within(t, time.Second), from)
		f.Next(1, Late(time.Second), OpTransfer)
		_, _ = f.Transfer(within(t, time.Second), from.Ref, to)
		assert.False(t, undone(t, f, to.Ref, &from.Ref), "Undo is settled while the transfer is on its way")
		assert.Empty(t, holderOf(t, f, "k"), "Undo left the source")
		f.Land()
		assert.Empty(t, holderOf(t, f, "k"), "the transfer took a free key")
		assert.Zero(t, f.Late())
		assert.True(t, undone(t, f, to.Ref, &from.Ref), "Undo is not settled though nothing is on its way")
	})
}

func TestLandAppliesALateCallOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		f.Next(1, Late(time.Second))
		ctx := within(t, time.Second)
		go f.Acquire(ctx, claimOf("k", "late"))
		synctest.Wait()
		f.Land() // before the caller gives up
		assert.Equal(t, "late", holderOf(t, f, "k"))
		_, _ = f.Store.Release(t.Context(), store.Ending{Ref: claimOf("k", "late").Ref})
		time.Sleep(time.Minute)
		assert.Empty(t, holderOf(t, f, "k"), "the call was applied a second time")
	})
}

func TestFaultsOfNextComeBeforeThoseOfUntil(t *testing.T) {
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
		_, err := f.Release(t.Context(), store.Ending{Ref: claimOf("k", "id").Ref})
		return err
	}
	for i, want := range []error{one, one, two, three, newer, newer} {
		require.ErrorIs(t, release(), want, "release %d", i)
	}
	liftNewer()
	require.ErrorIs(t, release(), older, "after the newer fault was lifted")
	liftOlder()
	require.ErrorIs(t, release(), store.ErrGone, "after all faults were lifted")
	liftOlder() // a second call has no effect
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
	assert.Equal(t, 10, f.Calls(OpLook))
	assert.Equal(t, 10, f.Calls(OpAcquire))
	assert.Equal(t, 20, f.Calls())
	f.ResetCalls()
	assert.Zero(t, f.Calls(), "after a reset")
}

func TestEveryCallFailsWhileTheStoreIsDown(t *testing.T) {
	f := NewFaulty(memstore.New())
	c := claimOf("k", "id")
	calls := func() map[Op]error {
		ctx := within(t, time.Second)
		_, acquire := f.Acquire(ctx, c)
		renew := f.Renew(ctx, []store.Renewal{{Ref: c.Ref, TTL: time.Minute}})
		_, transfer := f.Transfer(ctx, c.Ref, claimOf("k", "to"))
		_, release := f.Release(ctx, store.Ending{Ref: claimOf("k", "to").Ref})
		_, leave := f.Leave(ctx, "k", "x:here:0", false)
		_, undo := f.Undo(ctx, c.Ref, nil)
		_, look := f.Look(ctx, []string{"k"})
		errs := map[Op]error{
			OpAcquire: acquire, OpRenew: renew[0].Err, OpTransfer: transfer, OpRelease: release, OpLeave: leave,
			OpUndo: undo, OpBreak: f.Break(ctx, c.Ref, "why", true), OpLook: look,
			OpNotify: f.Notify(ctx, store.Notice{}),
		}
		for _, err := range f.List(ctx, "") {
			errs[OpList] = err
		}
		for _, err := range f.Watch(ctx, store.Audience{}) {
			errs[OpWatch] = err
			break
		}
		return errs
	}
	up := f.Down()
	for op, err := range calls() {
		assert.ErrorIs(t, err, ErrFault, "%s while down", op)
	}
	up()
	for op, err := range calls() {
		assert.NotErrorIs(t, err, ErrFault, "%s after that", op)
	}
	for _, op := range []Op{OpAcquire, OpRenew, OpRelease, OpLeave, OpTransfer, OpUndo, OpBreak, OpLook, OpNotify, OpWatch} {
		assert.Equal(t, 2, f.Calls(op), "calls of %s", op)
	}
}

func TestDownEndsARunningWatchWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(memstore.New())
		var notices int
		var last error
		go func() {
			for _, err := range f.Watch(t.Context(), store.Audience{}) {
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
		assert.Equal(t, 2, notices)
		assert.ErrorIs(t, last, ErrFault, "how the watch ended")
	})
}

func TestAFaultyIsTheFeedOfTheStoreItWraps(t *testing.T) {
	with, without := NewFaulty(memstore.New()), NewFaulty(struct{ store.Store }{})
	assert.Same(t, with, store.FeedOf(with), "the feed is found past the faults")
	mem, isThere := as[*memstore.Store](with)
	assert.True(t, isThere && mem == with.Store, "the store is found past the faults")
	for _, err := range without.Watch(within(t, time.Second), store.Audience{}) {
		assert.ErrorIs(t, err, errors.ErrUnsupported, "watching a store without a feed")
	}
	assert.ErrorIs(t, without.Notify(t.Context(), store.Notice{}), errors.ErrUnsupported, "notifying a store without a feed")
}
