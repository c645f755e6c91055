package system

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
)

// TestADeployRollsFromFivePermitsToSixAndBack by Try and in line, where a claim of the smaller number keeps
// its turn before one of the larger.
func TestADeployRollsFromFivePermitsToSixAndBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old, young := f.client(), f.client()
	taken := func(c *mongolock.Client, n int) *mongolock.Lease {
		t.Helper()
		l, err := c.TryAcquire(f.ctx(), "k", mongolock.OneOf(n))
		require.NoError(t, err)
		return l
	}
	full := func(c *mongolock.Client, n int) {
		t.Helper()
		_, err := c.TryAcquire(f.ctx(), "k", mongolock.OneOf(n))
		require.ErrorIs(t, err, mongolock.ErrHeld)
	}
	var all []*mongolock.Lease
	for range 5 {
		all = append(all, taken(old, 5))
	}
	full(old, 5)
	all = append(all, taken(young, 6))
	full(young, 6)

	type grant struct {
		of    int
		lease *mongolock.Lease
		err   error
	}
	granted := make(chan grant, 2)
	for i, n := range []int{5, 6} {
		c := []*mongolock.Client{old, young}[i]
		go func() {
			l, err := c.Acquire(f.ctx(), "k", mongolock.OneOf(n))
			granted <- grant{n, l, err}
		}()
		require.Eventually(t, func() bool {
			s, err := old.Inspect(f.ctx(), "k")
			return err == nil && len(s.Line) == i+1
		}, longest(), 10*time.Millisecond, "it stands in line")
	}
	f.release(all[0])
	full(young, 6) // five are taken, and the sixth is for those in line
	time.Sleep(100 * time.Millisecond)
	assert.Empty(t, granted, "the first in line allows five, and the second comes after it")
	f.release(all[1])
	all = all[2:]
	for _, n := range []int{5, 6} {
		select {
		case g := <-granted:
			require.NoError(t, g.err)
			assert.Equal(t, n, g.of)
			all = append(all, g.lease)
		case <-time.After(longest()):
			t.Fatal("nobody was granted a permit")
		}
	}
	full(young, 6)

	f.release(all[0]) // and back
	full(old, 5)
	f.release(all[1])
	all = append(all[2:], taken(old, 5))
	full(old, 5)
	for _, l := range all {
		f.release(l)
	}
}
