package assign_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/store/memstore"
)

// handoff is the most that a handoff takes on a link: some calls, one after the other.
const handoff = 25 * time.Millisecond

// loading is a Prepare that takes some time.
func loading(d time.Duration) assign.Option {
	return assign.Prepare(func(ctx context.Context, _ assign.Partition) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func TestARollingDeployMovesEachPartitionOnceAndWithoutAGap(t *testing.T) {
	for name, test := range map[string]struct {
		opts   []assign.Option
		first  bool // each new process is started before an old one is stopped
		moves  int  // for each partition once: 60; settling, they are those of the process that goes
		atMost time.Duration
	}{
		"the new one first":           {opts: []assign.Option{assign.Settle(5 * time.Second)}, first: true, moves: 60, atMost: handoff},
		"the new one first, prepared": {opts: []assign.Option{assign.Settle(5 * time.Second), loading(time.Second)}, first: true, moves: 60, atMost: handoff},
		"the old one first":           {opts: []assign.Option{assign.Settle(5 * time.Second)}, moves: 120, atMost: handoff},
		"it does not settle":          {first: true, moves: 100, atMost: handoff},
		"it does not drain":           {opts: []assign.Option{assign.Settle(5 * time.Second), assign.Drain(0)}, first: true, moves: 60, atMost: 4 * handoff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, memstore.New(), 60)
				var live []*process
				for i := range 5 {
					live = append(live, f.start(fmt.Sprint("old", i), test.opts...))
				}
				time.Sleep(time.Minute)
				f.counted()
				for i := range 5 {
					if !test.first {
						f.stop(live[0])
						time.Sleep(3 * time.Second)
					}
					live = append(live, f.start(fmt.Sprint("new", i), test.opts...))
					time.Sleep(2 * time.Second)
					if test.first {
						f.stop(live[0])
					}
					live = live[1:]
					time.Sleep(time.Minute)
				}
				moves, gaps := f.counted()
				assert.InDelta(t, test.moves, moves, 5)
				assert.LessOrEqual(t, slices.Max(gaps), test.atMost)
				f.stop(live...)
			})
		})
	}
}

func TestTheLastProcessStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		a := f.start("a")
		time.Sleep(time.Minute)
		began := time.Now()
		f.stop(a)
		assert.Less(t, time.Since(began), time.Second)
	})
}

func TestAProcessThatNobodyFollowsDrainsForItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		a := f.start("a", assign.Drain(7*time.Second))
		time.Sleep(time.Second)
		b := f.start("b", loading(time.Hour)) // it is never ready
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{"a": 16}, f.shares(), "until it is asked for")
		began := time.Now()
		a.cancel()
		time.Sleep(6 * time.Second)
		assert.Equal(t, map[string]int{"a": 16}, f.shares())
		require.NoError(t, <-a.over)
		assert.InDelta(t, 7, time.Since(began).Seconds(), 0.5)
		require.NoError(t, a.client.Close())
		f.stop(b)
	})
}

func TestAPartitionThatCannotBePreparedStaysWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		a := f.start("a")
		time.Sleep(time.Second)
		f.counted()
		var tries atomic.Int64
		errLoad := errors.New("no such file")
		b := f.start("b", assign.Prepare(func(_ context.Context, p assign.Partition) error {
			tries.Add(1)
			assert.Equal(t, [2]int64{16, 0}, [2]int64{int64(p.N), p.Token})
			assert.Nil(t, p.Lease())
			return errLoad
		}))
		err := <-b.over
		require.ErrorIs(t, err, assign.ErrUnprepared)
		require.ErrorIs(t, err, errLoad)
		assert.ErrorContains(t, err, `assign: "orders": assign: no partition could be prepared: `)
		assert.LessOrEqual(t, tries.Load(), int64(8*10))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"a": 16}, f.shares())
		moves, _ := f.counted()
		assert.Zero(t, moves)
		require.NoError(t, b.client.Close())
		f.stop(a)
	})
}

func TestFreePartitionsDoNotWaitForEachOthersPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 64)
		a := f.start("a")
		time.Sleep(time.Minute)
		b := f.start("b", loading(5*time.Second))
		time.Sleep(2 * time.Second)
		f.counted()
		f.kill(a)
		time.Sleep(time.Minute)
		_, gaps := f.counted()
		assert.Less(t, slices.Max(gaps), 36*time.Second, "its TTL, a second, and one Prepare")
		assert.Equal(t, map[string]int{"b": 64}, f.shares())
		f.bury(a)
		f.stop(b)
	})
}

func TestADrainWaitsForAWorkerThatStoodBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 1)
		a := f.start("a")
		time.Sleep(time.Second)
		b := f.start("b", loading(2*time.Second))
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{"a": 1}, f.shares())
		f.stop(a)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"b": 1}, f.shares())
		_, gaps := f.counted()
		assert.Less(t, slices.Max(gaps), handoff)
		f.stop(b)
	})
}

func TestPrepareIsToldThatItsPartitionGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 8)
		a := f.start("a")
		time.Sleep(time.Second)
		causes := make(chan error, 8)
		b := f.start("b", assign.Prepare(func(ctx context.Context, _ assign.Partition) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}))
		time.Sleep(time.Second)
		assert.Empty(t, causes, "it prepares 4")
		c := f.start("c", assign.Weight(2))
		time.Sleep(time.Second)
		assert.GreaterOrEqual(t, len(causes), 2, "and now it should have 2 fewer")
		assert.Equal(t, assign.ErrMoved, <-causes)
		f.stop(b, a, c)
	})
}

func TestTheContextSaysWhyThePartitionIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 1)
		causes := make(chan error, 3)
		work := func(ctx context.Context, p assign.Partition) error {
			assert.Equal(t, p.Token, p.Lease().Token())
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
		a := f.startWith("a", work)
		time.Sleep(time.Second)
		require.NoError(t, assign.Resize(t.Context(), a.client, name, 2))
		assert.Equal(t, assign.ErrResized, <-causes)
		time.Sleep(time.Second)
		f.n = 2
		b := f.start("b")
		time.Sleep(time.Second)
		assert.Equal(t, assign.ErrMoved, <-causes)
		f.stop(b)
		f.stop(a)
		assert.Equal(t, assign.ErrStopped, <-causes)
	})
}
