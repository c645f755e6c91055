package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
)

// A server that was too slow to renew them is too slow for all their releases at a time.
func TestThousandsOfLostLeasesAreGivenBackFourAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		loseAll(t, s)
		time.Sleep(time.Minute) // virtual: all are given back
		assert.Zero(t, s.taken(t))
		assert.EqualValues(t, 4, s.most.Load(), "at a time")
		assert.Equal(t, 5_000, s.Count(lab.Release))
	})
}

// They run out by themselves: to try each would take a hung store hours.
func TestLostLeasesThatRanOutAreLeftToThemselvesWhileReleasesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		s.releases(lab.Hang)
		loseAll(t, s)
		time.Sleep(time.Minute) // virtual
		assert.LessOrEqual(t, s.Count(lab.Release), 50, "four and some repetitions every five seconds, for a TTL")
		s.releases(nil)
		s.On(lab.Renew, nil)
		late := acquire(t, newClient(t, s), "another", mongolock.NoRenewal(), mongolock.TTL(10*time.Second))
		<-late.Done()
		time.Sleep(5 * time.Second) // virtual
		mustBeFree(t, s.Mem, "another")
	})
}

func TestALostLeaseIsGivenBackOneMarginAfterItsEnd(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k", mongolock.NoRenewal())
		time.Sleep(20 * time.Second)
		require.NoError(t, l.Renew(t.Context())) // the store would honour the lease until 50 s
		b.Mem.Break(t.Context(), store.Ref{Key: "k", ID: l.ID(), Mode: store.Exclusive}, "why", false)
		assert.ErrorIs(t, l.Renew(t.Context()), mongolock.ErrBroken)
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
