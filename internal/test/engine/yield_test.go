package engine_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

// waitFor has c wait for the key until the test ends.
func waitFor(t *testing.T, c *mongolock.Client, key string) (giveUp context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if l, err := c.Acquire(ctx, key); err == nil {
			_ = l.Release()
		}
	}()
	synctest.Wait()
	return cancel
}

func isWanted(l *mongolock.Lease) bool {
	select {
	case <-l.Wanted():
		return true
	default:
		return false
	}
}

func TestAHolderThatYieldsIsToldOfAWaiterAtOnce(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		c, rival := newClient(t, s), newClient(t, s)
		l := acquire(t, c, "k", mongolock.Yielding())
		other := acquire(t, c, "another", mongolock.Yielding())
		time.Sleep(time.Minute) // virtual: some renewals
		require.False(t, isWanted(l))
		_, err := rival.TryAcquire(t.Context(), "k")
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.False(t, isWanted(l), "an attempt does not wait")

		began := time.Now()
		giveUp := waitFor(t, rival, "k")
		<-l.Wanted()
		assert.Less(t, time.Since(began), time.Second)
		assert.False(t, isWanted(other))
		giveUp()
		time.Sleep(time.Minute)
		assert.True(t, isWanted(l), "for good")
		require.NoError(t, l.Err(), "it goes on: the holder decides")
	})
}

func TestAWaiterIsHeardOfThatCameWhileTheFeedOpened(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		c, rival := newClient(t, s), newClient(t, s)
		l := acquire(t, c, "k", mongolock.Yielding()) // opens the feed
		go func() { _, _ = rival.Acquire(t.Context(), "k") }()
		began := time.Now()
		<-l.Wanted()
		assert.Less(t, time.Since(began), time.Second)
	})
}

func TestAWaiterOfTheSameClientIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		l := acquire(t, c, "k")
		asked := l.Wanted()
		waitFor(t, c, "k")
		assert.True(t, isWanted(l))
		<-asked
		require.NoError(t, l.Release())
		synctest.Wait()
		next := acquire(t, c, "k")
		assert.False(t, isWanted(next), "nobody waits for it")
		assert.True(t, isWanted(l), "the channel of a lease that has ended stays as it was")
		waitFor(t, c, "k")
		assert.True(t, isWanted(next), "the channel is made after the waiter came")
	})
}

func TestYieldingIsForWhoHasTheKeyAlone(t *testing.T) {
	c := newClient(t, memstore.New())
	for _, how := range []mongolock.AcquireOption{mongolock.Shared(), mongolock.OneOf(3)} {
		_, err := c.Acquire(t.Context(), "k", mongolock.Yielding(), how)
		assert.EqualError(t, err, "mongolock: Yielding with Shared or OneOf: only an exclusive holder can yield")
	}
}

func TestOnlyAWaiterForTheKeyItselfMakesItWanted(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c, rival := newClient(t, b), newClient(t, b.Mem)
		busy := acquire(t, c, "busy", mongolock.Yielding())
		time.Sleep(time.Second)
		key := "" // of the same counter
		for i := 0; bucket(key) != bucket("busy"); i++ {
			key = fmt.Sprint("upload:", i)
		}
		b.On(lab.Acquire, lab.Slow(0, 20*time.Millisecond))
		time.AfterFunc(10*time.Millisecond, func() { _, _ = rival.Acquire(t.Context(), "busy", mongolock.MaxWait(time.Second)) })
		l := acquire(t, c, key, mongolock.Yielding())
		synctest.Wait()
		assert.True(t, isWanted(busy))
		assert.False(t, isWanted(l))

		_, err := rival.TryAcquire(t.Context(), key)
		require.ErrorIs(t, err, mongolock.ErrHeld)
		synctest.Wait()
		assert.False(t, isWanted(l), "who tries does not wait")
	})
}

func bucket(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return h.Sum32() % 64
}

// A read that was sent while its holder still waited, and is answered after the grant, shows its own
// place in line.
func TestAReadFromBeforeItsGrantTellsAHolderOfNobody(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c, other := newClient(t, b), newClient(t, b.Mem)
		held := acquire(t, other, "k")
		var late atomic.Int32
		b.On(lab.Look, func(_ context.Context, call *lab.Call) error {
			err := call.Do()
			time.Sleep(100 * time.Millisecond)
			if err == nil && len(call.Statuses[0].Line) > 0 {
				late.Add(1)
			}
			return err
		})
		wait := inBackground(t.Context(), c, "k", mongolock.Yielding())
		time.Sleep(50 * time.Millisecond)
		release(t, held)
		r := <-wait
		require.NoError(t, r.err)
		time.Sleep(time.Second)
		require.Positive(t, late.Load(), "a read that showed the place")
		assert.False(t, isWanted(r.lease), "nobody else waits")
		giveUp := waitFor(t, other, "k")
		defer giveUp()
		assert.True(t, isWanted(r.lease))
		release(t, r.lease)
	})
}
