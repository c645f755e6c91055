package mongolock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestWaitersOfAHigherPriorityComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		held := acquire(t, newClient(t, s), "k")
		var got []int
		waits := make(chan int)
		for _, priority := range []int{0, 3, 1, 3, 0, 9} {
			c := newClient(t, s)
			go func() {
				l, err := c.Acquire(t.Context(), "k", mongolock.Priority(priority))
				if assert.NoError(t, err) {
					got = append(got, priority)
					assert.NoError(t, l.Release())
				}
				waits <- 1
			}()
			time.Sleep(time.Second)
		}
		release(t, held)
		for range 6 {
			<-waits
		}
		assert.Equal(t, []int{9, 3, 3, 1, 0, 0}, got)
	})
}

// The calls of a client keep their order. The client stands in line with the priority of the first.
func TestAClientStandsWithThePriorityOfItsFirstWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		held, c, other := acquire(t, newClient(t, s), "k"), newClient(t, s), newClient(t, s)
		first := inBackground(t.Context(), c, "k")
		time.Sleep(time.Second)
		second := inBackground(t.Context(), c, "k", mongolock.Priority(5))
		time.Sleep(time.Second)
		between := inBackground(t.Context(), other, "k", mongolock.Priority(1))
		time.Sleep(time.Second)
		release(t, held)
		l := (<-between).lease
		select {
		case <-first:
			t.Fatal("the first of a lower priority passed one of a higher")
		case <-time.After(time.Second):
		}
		release(t, l)
		release(t, (<-first).lease)
		release(t, (<-second).lease)
	})
}

func TestBadPriorities(t *testing.T) {
	c := newClient(t, memstore.New())
	for _, n := range []int{-1, 10} {
		_, err := c.Acquire(t.Context(), "k", mongolock.Priority(n))
		require.ErrorContains(t, err, "must be between 0 and 9")
	}
}
