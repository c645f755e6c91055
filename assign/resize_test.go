package assign_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestAnotherNumberOfPartitionsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		a := f.start("a")
		time.Sleep(time.Second)
		f.n = 32
		b := f.start("b")
		err := <-b.over
		require.ErrorIs(t, err, assign.ErrSize)
		assert.EqualError(t, err, `assign: "orders" has 16 partitions in the processes that run, or died less than a TTL ago, and 32 in this one: `+
			`start all with one number, and change it with Resize`)
		size, ok := errors.AsType[*assign.SizeError](err)
		require.True(t, ok)
		assert.Equal(t, assign.SizeError{Name: name, Here: 32, There: 16}, *size)
		require.NoError(t, b.client.Close())
		assert.Equal(t, map[string]int{"a": 16}, f.shares())
		f.stop(a)

		c := f.start("c") // once no other is there, any number will do
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"c": 32}, f.shares())
		f.stop(c)
	})
}

func TestResizeChangesTheNumberOfPartitionsOfAllThatRun(t *testing.T) {
	for _, n := range []int{4, 40} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memstore.New(), 16)
			var all []*process
			for i := range 3 {
				all = append(all, f.start(fmt.Sprint("p", i)))
			}
			time.Sleep(time.Minute)
			f.counted()
			require.NoError(t, assign.Resize(t.Context(), all[1].client, name, n))
			time.Sleep(time.Second)
			total := 0
			for _, share := range f.shares() {
				assert.InDelta(t, n/3, share, 1)
				total += share
			}
			assert.Equal(t, n, total)

			f.n = n
			all = append(all, f.start("p3"))
			time.Sleep(time.Second)
			assert.InDelta(t, n/4, f.shares()["p3"], 1, "a process with the new number is one of them")
			f.stop(all...)
		})
	}
}

func TestAResizeToTheNumberThatTheyHaveStopsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		var calls atomic.Int64
		a := f.startWith("a", func(ctx context.Context, _ assign.Partition) error {
			calls.Add(1)
			<-ctx.Done()
			return nil
		})
		time.Sleep(time.Second)
		require.NoError(t, assign.Resize(t.Context(), a.client, name, 16), "as if a call of it had been repeated")
		time.Sleep(time.Second)
		assert.EqualValues(t, 16, calls.Load())
		f.stop(a)
	})
}

func TestWithoutWorkersResizeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		client := f.start("a")
		f.stop(client)
		client = f.start("b")
		time.Sleep(time.Second)
		f.stop(client)
		c := f.start("c")
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, assign.Resize(t.Context(), c.client, "others", 8))
		assert.Less(t, time.Since(began), 3*time.Second)
		assert.Equal(t, map[string]int{"c": 16}, f.shares())
		f.stop(c)
	})
}

func TestAProcessThatStartsWhileResizeFindsNoWorkersWorks(t *testing.T) {
	for after := range 10 {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memstore.New(), 16)
			op := lab.Client(t, newLink(f.in, 99))
			resized := make(chan error)
			go func() { resized <- assign.Resize(t.Context(), op, name, 8) }()
			time.Sleep(time.Duration(after) * 3 * time.Millisecond)
			a := f.start("a")
			require.NoError(t, <-resized)
			time.Sleep(time.Second)
			assert.Contains(t, []int{8, 16}, f.shares()["a"], "it had a seat before Resize, or after it")
			require.NoError(t, op.Close())
			f.stop(a)
		})
	}
}

// A line has 64 places, and a client one in each line.
func TestResizeNeedsNoPlaceInALineOfWorkers(t *testing.T) {
	for _, test := range []struct{ workers, n, to, by int }{
		{2, 1, 4, 1}, // by the client of a worker that stands by
		{2, 1, 4, 0}, // and of one that works
		{66, 1, 2, 65},
		{66, 66, 99, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memstore.New(), test.n)
			var all []*process
			var old atomic.Int64 // calls of the work with the old number
			for i := range test.workers {
				called := fmt.Sprint("p", i)
				all = append(all, f.startWith(called, func(ctx context.Context, p assign.Partition) error {
					if p.N == test.n {
						old.Add(1)
					}
					return f.work(called)(ctx, p)
				}))
				if i == 0 {
					time.Sleep(100 * time.Millisecond)
				}
			}
			time.Sleep(10 * time.Second)
			before, began := old.Load(), time.Now()
			require.NoError(t, assign.Resize(t.Context(), all[test.by].client, name, test.to))
			assert.Less(t, time.Since(began), time.Second)
			time.Sleep(2 * time.Second)
			assert.Equal(t, before, old.Load(), "none comes again too early")
			total := 0
			for _, share := range f.shares() {
				total += share
			}
			assert.Equal(t, test.to, total)
			f.stop(all...)
		})
	}
}

func TestAWorkerThatWasCutOffDuringAResizeComesAgainWithTheNewNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		a, b := f.start("a"), f.start("b")
		time.Sleep(time.Second)
		a.link.set(true)
		require.NoError(t, assign.Resize(t.Context(), b.client, name, 24), "once the seat of a has ended")
		assert.Equal(t, map[string]int{"b": 24}, func() map[string]int { time.Sleep(time.Second); return f.shares() }())
		a.link.set(false)
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]int{"a": 12, "b": 12}, f.shares())
		f.stop(a, b)
	})
}

// The one with the other number is the first to come after an outage of all.
func TestAWorkerThatFindsAnotherNumberSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		l := newLogs()
		a := f.start("a", l.option())
		time.Sleep(time.Second)
		a.link.set(true)
		time.Sleep(40 * time.Second)
		f.n = 32
		b := f.start("b")
		time.Sleep(time.Second)
		a.link.set(false)
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]int{"a": 16, "b": 16}, f.shares())
		assert.Equal(t, 1, l.counted("assign: the number of partitions has changed"))
		f.stop(a, b)
	})
}

func TestAResizeAfterWhichNoWorkerComesAgainIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		op := lab.Client(t, f.in)
		a := f.start("a")
		time.Sleep(time.Minute)
		a.link.set(true)
		require.EqualError(t, assign.Resize(t.Context(), op, name, 24),
			`assign: resize "orders": the workers have stopped, and none has come again in 5s: their number of partitions may be the old one`)
		a.link.set(false)
		time.Sleep(10 * time.Second) // its releases failed, and are repeated with pauses
		assert.Equal(t, map[string]int{"a": 16}, f.shares())
		require.NoError(t, op.Close())
		f.stop(a)
	})
}

// Its seat is removed by hand before a worker has come again.
func TestAResizeThatOthersWereQuickerThanIsAnError(t *testing.T) {
	for after := time.Duration(0); after < 15*time.Millisecond; after += time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memstore.New(), 16)
			a, b := f.start("a"), f.start("b")
			time.Sleep(time.Minute)
			l := newLink(f.in, uint64(after))
			l.claim = func(c store.Claim) {
				if c.Mode == store.Permits && c.Note == "resize to 24 partitions" {
					time.AfterFunc(after, func() { f.in.Delete(name + "/workers") })
				}
			}
			op := lab.Client(t, l)
			err := assign.Resize(t.Context(), op, name, 24)
			time.Sleep(40 * time.Second)
			if shares := f.shares(); err == nil || shares["a"]+shares["b"] == 24 {
				assert.Equal(t, map[string]int{"a": 12, "b": 12}, shares)
			} else {
				assert.Equal(t, map[string]int{"a": 8, "b": 8}, shares)
				assert.EqualError(t, err, `assign: resize "orders": workers with 16 partitions were quicker: try it again`)
			}
			require.NoError(t, op.Close())
			f.stop(a, b)
		})
	}
}

func TestAResizeThatGivesUpLeavesTheNumberAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		slow := func(ctx context.Context, p assign.Partition) error {
			f.begin("a", p)
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			f.end("a", p)
			return nil
		}
		a := f.startWith("a", slow)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, assign.Resize(ctx, a.client, name, 8), context.DeadlineExceeded)
		time.Sleep(10 * time.Second)
		assert.Equal(t, map[string]int{"a": 16}, f.shares())
		f.stop(a)
	})
}

// A process with the old number that starts during the change, while Resize waits for a seat or when it
// has them all, must not be the first to come again.
func TestAProcessWithTheOldNumberIsRefusedDuringAResize(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Second, 32 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memstore.New(), 16)
			a, b := f.start("a"), f.start("b")
			time.Sleep(time.Second)
			f.kill(b) // Resize waits for it, as its seat is still there
			resized := make(chan error)
			go func() { resized <- assign.Resize(context.Background(), a.client, name, 24) }()
			time.Sleep(after)
			c := f.start("c")
			require.ErrorIs(t, <-c.over, assign.ErrSize)
			require.NoError(t, c.client.Close())
			require.NoError(t, <-resized)
			time.Sleep(time.Second)
			assert.Equal(t, map[string]int{"a": 24}, f.shares())
			f.bury(b)
			f.stop(a)
		})
	}
}

// Partition 7 of 16 is not partition 7 of 32: no work with one number may go on beside the other's.
func TestWorkWithTheOldNumberIsOverBeforeThatWithTheNewOneBegins(t *testing.T) {
	for _, by := range []string{"a new fleet", "Resize"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memstore.New(), 16)
			var mu sync.Mutex
			busy := map[int]int{} // by the number of partitions, how many are worked on
			work := func(ctx context.Context, p assign.Partition) error {
				mu.Lock()
				busy[p.N]++
				assert.False(t, busy[16] > 0 && busy[32] > 0, by)
				mu.Unlock()
				<-ctx.Done()
				time.Sleep(3 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				busy[p.N]--
				return ctx.Err()
			}
			a, b, c := f.startWith("a", work), f.startWith("b", work), f.startWith("c", work)
			time.Sleep(10 * time.Second)
			var more []*process
			a.cancel() // it drains
			if by == "Resize" {
				time.Sleep(time.Second)
				require.NoError(t, assign.Resize(t.Context(), b.client, name, 32))
				more = []*process{b, c}
			} else {
				b.cancel()
				c.cancel()
				time.Sleep(100 * time.Millisecond)
				f.n = 32
				more = []*process{f.startWith("d", work)}
			}
			time.Sleep(20 * time.Second)
			mu.Lock()
			assert.Equal(t, map[int]int{16: 0, 32: 32}, busy, by)
			mu.Unlock()
			f.stop(more...)
			for _, p := range []*process{a, b, c} {
				if !slices.Contains(more, p) {
					f.stop(p)
				}
			}
		})
	}
}

func TestAResizeThatDiesInLineStopsTheWorkForSomeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := memstore.New()
		f := newFleet(t, in, 4)
		a := f.start("a")
		time.Sleep(time.Second)
		_, err := in.Acquire(t.Context(), store.Claim{
			Ref: store.Ref{Key: name + "/workers", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: time.Minute,
			Owner: "dead", Place: store.NewPlace(store.Exclusive, 1, 1, "dead"),
		})
		require.ErrorIs(t, err, mongolock.ErrHeld)
		time.Sleep(30 * time.Second)
		assert.Equal(t, map[string]int{"a": 4}, f.shares())
		f.stop(a)
	})
}

func TestTwoResizesAtOnceComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		a := f.start("a")
		time.Sleep(time.Second)
		other := lab.Client(t, f.in)
		first := make(chan error)
		go func() { first <- assign.Resize(t.Context(), other, name, 8) }()
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, assign.Resize(t.Context(), other, name, 32))
		require.NoError(t, <-first)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"a": 32}, f.shares())
		f.stop(a)
		require.NoError(t, other.Close())
	})
}
