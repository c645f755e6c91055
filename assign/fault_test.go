package assign_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestWorkThatReturnsEarlyIsCalledAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 1)
		var calls, token atomic.Int64
		a := f.startWith("a", func(_ context.Context, p assign.Partition) error {
			if calls.Add(1); calls.Load()%2 == 0 {
				return nil
			}
			token.Store(p.Token)
			return errors.New("no orders")
		})
		time.Sleep(10 * time.Second)
		assert.InDelta(t, 12, calls.Load(), 3)
		first := token.Load()
		time.Sleep(10 * time.Second)
		assert.Equal(t, first, token.Load(), "under the same lease")
		f.stop(a)
	})
}

func TestWorkThatDoesNotReturnLosesItsPartitionAndEndsItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 8)
		free := make(chan struct{})
		var hangs atomic.Int64
		a := f.startWith("a", func(ctx context.Context, p assign.Partition) error {
			f.begin("a", p)
			<-ctx.Done()
			f.end("a", p)
			if p.ID == 7 {
				hangs.Add(1)
				<-free
			}
			return ctx.Err()
		}, assign.Grace(3*time.Second))
		time.Sleep(time.Second)
		b := f.start("b") // it should have 4 to 7
		time.Sleep(2 * time.Second)
		assert.Equal(t, map[string]int{"a": 4, "b": 3}, f.shares())
		err := <-a.over
		require.ErrorIs(t, err, assign.ErrHung)
		assert.EqualError(t, err, `assign: "orders": assign: the work of a partition did not return: 7`)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"b": 8}, f.shares())
		assert.EqualValues(t, 1, hangs.Load())
		require.NoError(t, a.client.Close())
		f.stop(b)
		close(free)
	})
}

func TestPrepareThatDoesNotReturnEndsItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 2)
		free := make(chan struct{})
		a := f.start("a", assign.Prepare(func(context.Context, assign.Partition) error { <-free; return nil }))
		time.Sleep(time.Second)
		a.cancel()
		require.ErrorIs(t, <-a.over, assign.ErrHung)
		require.NoError(t, a.client.Close())
		close(free)
	})
}

func TestWorkWithoutProgressIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 2)
		causes := make(chan error, 1)
		calls := make(chan int, 10)
		a := f.startWith("a", func(ctx context.Context, p assign.Partition) error {
			calls <- p.ID
			for ctx.Err() == nil {
				time.Sleep(time.Second)
				if p.ID == 0 {
					p.Lease().Progress()
				}
			}
			causes <- context.Cause(ctx)
			return ctx.Err()
		}, assign.MaxStall(5*time.Second))
		require.ErrorIs(t, <-causes, mongolock.ErrStalled)
		time.Sleep(100 * time.Millisecond)
		assert.ElementsMatch(t, []int{0, 1, 1}, []int{<-calls, <-calls, <-calls}, "it is called again once it has returned")
		a.cancel()
		<-causes
		<-causes
		require.NoError(t, <-a.over)
		require.NoError(t, a.client.Close())
	})
}

func TestWorkIsStoppedBeforeOthersTakeOverIfTheStoreIsOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 8)
		a, b := f.start("a"), f.start("b")
		time.Sleep(time.Minute)
		a.link.set(true)
		time.Sleep(20 * time.Second)
		assert.Equal(t, map[string]int{"a": 4, "b": 4}, f.shares(), "an outage shorter than the leases is not noticed")
		time.Sleep(11 * time.Second)
		assert.Equal(t, map[string]int{"b": 8}, f.shares())
		time.Sleep(5 * time.Minute)
		a.link.set(false)
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]int{"a": 4, "b": 4}, f.shares(), "it comes again")
		f.stop(a, b)
	})
}

func TestAWorkerWhoseSeatIsBrokenComesAgain(t *testing.T) {
	for called, gone := range map[string]func(*process, *memstore.Store) error{
		"broken by an operator": func(p *process, _ *memstore.Store) error {
			_, err := p.client.Break(context.Background(), name+"/workers", "test", 0)
			return err
		},
		"removed by hand": func(_ *process, in *memstore.Store) error { in.Delete(name + "/workers"); return nil },
	} {
		t.Run(called, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, memstore.New(), 8)
				a := f.start("a")
				time.Sleep(time.Minute)
				require.NoError(t, gone(a, f.in))
				time.Sleep(15 * time.Second)
				assert.Equal(t, map[string]int{"a": 8}, f.shares())
				s, err := assign.Look(t.Context(), a.client, name)
				require.NoError(t, err)
				require.Len(t, s.Workers, 1)
				assert.Less(t, s.Workers[0].Age, 15*time.Second)
				f.stop(a)
			})
		})
	}
}

func TestOfMoreWorkersThanPartitionsTheLastOnesStandBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 2)
		var all []*process
		for i := range 4 {
			all = append(all, f.start(fmt.Sprint("p", i)))
			time.Sleep(time.Second)
		}
		assert.Equal(t, map[string]int{"p0": 1, "p1": 1}, f.shares())
		f.stop(all[0])
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"p1": 1, "p2": 1}, f.shares())
		f.stop(all[1:]...)
	})
}

func TestWithoutAFeedChangesAreSeenWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		f.clientOpts = []mongolock.ClientOption{mongolock.WithoutFeed()}
		a := f.start("a")
		time.Sleep(5 * time.Second)
		b := f.start("b")
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]int{"a": 8, "b": 8}, f.shares())
		f.stop(a)
		time.Sleep(2 * time.Second)
		assert.Equal(t, map[string]int{"b": 16}, f.shares())
		f.stop(b)
	})
}

func TestRunRunsOnceForANameOnAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 2)
		a := f.start("a")
		time.Sleep(time.Second)
		err := assign.Run(t.Context(), a.client, name, 2, f.work("a"))
		require.ErrorIs(t, err, assign.ErrRunning)
		assert.EqualError(t, err, `assign: runs already in this process: "orders"`)
		f.stop(a)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := mongolock.NewWithStore(f.in)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, assign.Run(ctx, c, name, 2, f.work("c"), assign.WithLogger(quiet())), "one after the other")
		}
		require.NoError(t, c.Close())
	})
}

func TestAFleetAtRestSendsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 256)
		a, b := f.start("a"), f.start("b")
		time.Sleep(5 * time.Minute) // all leases are in the session
		before := map[string]int{}
		for _, kind := range []string{"acquire", "renew", "release", "look", "list", "session", "notify"} {
			before[kind] = a.link.sent(kind)
		}
		time.Sleep(10 * time.Minute)
		for kind, most := range map[string]int{"acquire": 0, "renew": 0, "release": 0, "list": 0, "notify": 0, "session": 61, "look": 95} {
			assert.LessOrEqual(t, a.link.sent(kind)-before[kind], most, kind)
		}
		f.stop(a, b)
	})
}
