package mongolock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func detach(t *testing.T, l *mongolock.Lease) string {
	t.Helper()
	ticket, err := l.Detach(t.Context())
	require.NoError(t, err)
	return ticket
}

func TestATicketStaysGoodAfterAResumeThatWasNeverApplied(t *testing.T) {
	onHookedStore(t, func(t *testing.T, b *lab.Store, s store.Store) {
		c := newClient(t, s)
		l := acquire(t, c, "k")
		ticket := detach(t, l)
		b.On(lab.Transfer, lab.Fail(errNet))
		_, err := c.Resume(t.Context(), ticket)
		assert.ErrorIs(t, err, errNet)
		assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		b.On(lab.Transfer, nil)
		time.Sleep(5 * time.Second) // the clean-up is done
		resumed, err := c.Resume(t.Context(), ticket)
		require.NoError(t, err)
		assert.Equal(t, l.Token(), resumed.Token())
		time.Sleep(time.Hour)
		assert.NoError(t, resumed.Err())
	})
}

func TestAResumeWhoseReplyIsLostLeavesTheKeyFree(t *testing.T) {
	onHookedStore(t, func(t *testing.T, b *lab.Store, s store.Store) {
		c := newClient(t, s)
		ticket := detach(t, acquire(t, c, "k"))
		b.On(lab.Transfer, lab.LoseReply(errNet))
		_, err := c.Resume(t.Context(), ticket)
		assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		time.Sleep(time.Second)
		mustBeFree(t, b, "k")
	})
}

func TestADetachThatFailsLeavesTheLeaseAsItWas(t *testing.T) {
	onHookedStore(t, func(t *testing.T, b *lab.Store, s store.Store) {
		l := acquire(t, newClient(t, s), "k")
		b.On(lab.Renew, lab.Fail(errNet))
		_, err := l.Detach(t.Context())
		assert.ErrorIs(t, err, errNet)
		b.On(lab.Renew, nil)
		time.Sleep(time.Hour)
		assert.NoError(t, l.Err())
		release(t, l)
		_, err = l.Detach(t.Context())
		assert.ErrorIs(t, err, mongolock.ErrReleased)
	})
}

func TestBreakFreesAKeyWhoseHolderCannotBeReached(t *testing.T) {
	onHookedStore(t, func(t *testing.T, b *lab.Store, s store.Store) {
		l := acquire(t, newClient(t, s), "k", mongolock.TTL(time.Hour))
		b.On(lab.Renew, lab.Fail(errNet))
		operator := newClient(t, b.Mem)
		wait := inBackground(t.Context(), operator, "k")
		synctest.Wait()
		start := time.Now()
		_, err := operator.Break(t.Context(), "k", "why", 5*time.Second)
		require.NoError(t, err)
		tookBetween(t, start, 5*time.Second, 5*time.Second)
		assert.NoError(t, (<-wait).err)
		tookBetween(t, start, 5*time.Second, 5100*time.Millisecond)
		b.On(lab.Renew, nil)
		assert.ErrorIs(t, l.Renew(t.Context()), mongolock.ErrLost)
	})
}

// A holder that MinHold keeps was released: there is nobody to tell. It may be released during the wait,
// too, as by a holder that was told.
func TestBreakDoesNotWaitForAKeptKey(t *testing.T) {
	for when, released := range map[string]func(l *mongolock.Lease){
		"before":         func(l *mongolock.Lease) { _ = l.Release() },
		"meanwhile":      func(l *mongolock.Lease) { time.AfterFunc(time.Second, func() { _ = l.Release() }) },
		"as it was told": func(l *mongolock.Lease) {},
	} {
		onHookedStore(t, func(t *testing.T, b *lab.Store, s store.Store) {
			released(acquire(t, newClient(t, s), "k", mongolock.MinHold(time.Hour)))
			mustBeHeld(t, b, "k")
			start := time.Now()
			marked, err := newClient(t, s).Break(t.Context(), "k", "why", 30*time.Minute)
			require.NoError(t, err)
			assert.Len(t, marked, 1)
			assert.Less(t, time.Since(start), 30*time.Second, "released %s", when)
			mustBeFree(t, b, "k")
		})
	}
}

// Behind a router the time of a read is that of the shard which was last heard of.
func TestBreakIsNotMisledByAnotherShardsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		b := lab.New(mem)
		l := acquire(t, newClient(t, mem), "k", mongolock.TTL(30*time.Second))
		var looks atomic.Int32 // the last one may come beside the end
		b.On(lab.Look, func(_ context.Context, call *lab.Call) error {
			err := call.Do()
			if looks.Add(1) > 1 {
				call.Statuses[0].Now = call.Statuses[0].Now.Add(time.Hour)
			}
			return err
		})
		_, err := newClient(t, b).Break(t.Context(), "k", "why", 15*time.Second)
		require.NoError(t, err)
		assert.Greater(t, looks.Load(), int32(1))
		require.ErrorIs(t, l.Err(), mongolock.ErrBroken, "it was told by a renewal, before the key was free")
	})
}

func TestBreakWithNegativeGraceRemovesNothing(t *testing.T) {
	onHookedStore(t, func(t *testing.T, b *lab.Store, s store.Store) {
		dead := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: time.Minute}
		_, err := b.Mem.Acquire(t.Context(), dead)
		require.NoError(t, err)
		c := newClient(t, s)
		broken, err := c.Break(t.Context(), "k", "why", -1)
		require.NoError(t, err)
		require.Len(t, broken, 1)
		time.Sleep(time.Minute - 1)
		mustBeHeld(t, b, "k")
		time.Sleep(time.Nanosecond)
		broken, err = c.Break(t.Context(), "k", "why", 0)
		assert.NoError(t, err)
		assert.Empty(t, broken, "holders of a free key")
		acquire(t, c, "k")
	})
}
