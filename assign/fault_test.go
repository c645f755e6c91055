package assign_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

func TestWorkThatFailsIsCalledAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 1)
		var calls, token atomic.Int64
		l := newLogs()
		a := f.startWith("a", func(_ context.Context, p assign.Partition) error {
			calls.Add(1)
			token.Store(p.Token)
			return errors.New("no orders")
		}, l.option())
		time.Sleep(10 * time.Second)
		assert.InDelta(t, 12, calls.Load(), 3)
		first := token.Load()
		time.Sleep(10 * time.Second)
		assert.Equal(t, first, token.Load(), "under the same lease")
		assert.Equal(t, 5, l.counted("assign: the work of a partition failed, calling it again"), "less and less")
		f.stop(a)
	})
}

func TestWorkThatReturnsNilIsDoneUntilItsPartitionMovesOrItIsWoken(t *testing.T) {
	for name, wakeEach := range map[string]bool{"with a feed": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, memstore.New(), 2)
				if wakeEach {
					f.clientOpts = []mongolock.ClientOption{mongolock.WithoutFeed()}
				}
				l := newLogs()
				var calls atomic.Int64
				done := func(_ context.Context, _ assign.Partition) error { calls.Add(1); return nil }
				a := f.startWith("a", done, l.option(), assign.With(mongolock.MaxStall(5*time.Second)))
				time.Sleep(time.Second)
				calls.Store(0)
				time.Sleep(time.Minute)
				if wakeEach {
					assert.InDelta(t, 120, calls.Swap(0), 12, "of two partitions in a minute, as it hears of no wake")
				} else {
					assert.Zero(t, calls.Load())
				}
				require.NoError(t, assign.Wake(t.Context(), a.client, "orders"))
				time.Sleep(1500 * time.Millisecond)
				assert.GreaterOrEqual(t, calls.Swap(0), int64(2), "woken")
				b := f.startWith("b", done)
				time.Sleep(1500 * time.Millisecond)
				assert.GreaterOrEqual(t, calls.Swap(0), int64(1), "one partition has moved")
				l.mu.Lock()
				assert.Empty(t, l.all, "what was logged")
				l.mu.Unlock()
				f.stop(b)
				f.stop(a)
			})
		})
	}
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
		assert.EqualError(t, err, `assign: "orders": assign: a function did not return: the work of partition 7, within the Grace of 3s`)
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
		err := <-a.over
		require.ErrorIs(t, err, assign.ErrHung)
		assert.ErrorContains(t, err, "assign: a function did not return: Prepare of partition ")
		require.NoError(t, a.client.Close())
		close(free)
	})
}

func TestOnePartitionThatCannotBePreparedKeepsNoOthersFromWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		var tries atomic.Int64
		bad := assign.Prepare(func(_ context.Context, p assign.Partition) error {
			if p.ID != 7 {
				return nil
			}
			tries.Add(1)
			return errors.New("its file is damaged")
		})
		a, b := f.start("a", bad), f.start("b", bad)
		time.Sleep(time.Minute)
		tries.Store(0)
		time.Sleep(10 * time.Minute)
		assert.InDelta(t, 20, tries.Load(), 2)
		shares := f.shares()
		assert.Equal(t, 15, shares["a"]+shares["b"])
		f.stop(a, b)
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
		}, assign.With(mongolock.MaxStall(5*time.Second)))
		require.ErrorIs(t, <-causes, mongolock.ErrStalled)
		time.Sleep(200 * time.Millisecond)
		assert.ElementsMatch(t, []int{0, 1, 1}, []int{<-calls, <-calls, <-calls}, "it is called again once it has returned")
		a.cancel()
		<-causes
		<-causes
		require.NoError(t, <-a.over)
		require.NoError(t, a.client.Close())
	})
}

func TestWorkThatStallsAgainAndAgainIsCalledLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 1)
		var calls atomic.Int64
		a := f.startWith("a", func(ctx context.Context, _ assign.Partition) error {
			calls.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}, assign.With(mongolock.MaxStall(10*time.Millisecond)))
		time.Sleep(10 * time.Second)
		first := calls.Swap(0)
		assert.LessOrEqual(t, first, int64(9))
		time.Sleep(50 * time.Second)
		assert.LessOrEqual(t, calls.Load(), int64(8), "in five times as long")
		assert.Positive(t, calls.Load())
		f.stop(a)
	})
}

func TestAMaxHoldIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 1)
		f.clientOpts = []mongolock.ClientOption{mongolock.MaxHold(8 * time.Second)}
		a := f.start("a")
		time.Sleep(5 * time.Minute)
		_, gaps := f.counted()
		assert.Less(t, slices.Max(gaps), 200*time.Millisecond)
		f.stop(a)
	})
}

func TestPartitionsThatCannotBeHadKeepNoOthersFromWork(t *testing.T) {
	hang := assign.Prepare(func(ctx context.Context, p assign.Partition) error {
		if p.ID%2 == 0 {
			<-ctx.Done()
		}
		return ctx.Err()
	})
	for called, test := range map[string]struct {
		spoil func(*testing.T, *memstore.Store, *mongolock.Client, string) error
		opts  []assign.Option
	}{
		"held by hand": {spoil: func(t *testing.T, _ *memstore.Store, op *mongolock.Client, key string) error {
			_, err := op.Acquire(t.Context(), key)
			return err
		}},
		"permits": {spoil: func(t *testing.T, _ *memstore.Store, op *mongolock.Client, key string) error {
			_, err := op.Acquire(t.Context(), key, mongolock.OneOf(2))
			return err
		}},
		"of another program": {spoil: func(_ *testing.T, in *memstore.Store, _ *mongolock.Client, key string) error {
			in.Put(key, "x")
			return nil
		}},
		"prepared for ever": {opts: []assign.Option{hang}},
	} {
		t.Run(called, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, memstore.New(), 48)
				op := lab.Client(t, f.in)
				for id := 0; id < 48 && test.spoil != nil; id += 2 {
					require.NoError(t, test.spoil(t, f.in, op, fmt.Sprintf("%s/%04d", name, id)))
				}
				a := f.start("a", test.opts...)
				time.Sleep(time.Minute)
				assert.Equal(t, map[string]int{"a": 24}, f.shares())
				require.NoError(t, op.Close())
				f.stop(a)
			})
		})
	}
}

// The work of a is slow to return: a slot of the newcomer is not kept for it.
func TestOwnersThatAreSlowToReturnKeepNoOthersFromHandingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 64)
		a := f.startWith("a", func(ctx context.Context, p assign.Partition) error {
			f.begin("a", p)
			<-ctx.Done()
			f.end("a", p)
			if p.ID < 40 {
				time.Sleep(time.Minute)
			}
			return ctx.Err()
		}, assign.Grace(2*time.Minute))
		time.Sleep(time.Second)
		b := f.start("b") // it should have 32 to 63
		time.Sleep(20 * time.Second)
		assert.Equal(t, map[string]int{"a": 32, "b": 24}, f.shares())
		a.cancel()
		b.cancel()
		require.NoError(t, <-a.over)
		require.NoError(t, <-b.over)
		require.NoError(t, a.client.Close())
		require.NoError(t, b.client.Close())
	})
}

func TestTheClientsLimitsDoNotEndASeat(t *testing.T) {
	for called, limit := range map[string]mongolock.ClientOption{
		"MaxHold": mongolock.MaxHold(5 * time.Second), "MaxStall": mongolock.MaxStall(5 * time.Second), "MaxWait": mongolock.MaxWait(1),
	} {
		t.Run(called, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, memstore.New(), 1)
				f.clientOpts = []mongolock.ClientOption{limit}
				a, b := f.start("a"), f.start("b")
				time.Sleep(10 * time.Minute)
				s, err := assign.Look(t.Context(), a.client, name)
				require.NoError(t, err)
				require.Len(t, s.Workers, 2)
				for _, w := range s.Workers {
					assert.Greater(t, w.Age, 9*time.Minute)
				}
				if called == "MaxWait" {
					assert.LessOrEqual(t, a.link.Count(lab.Acquire)+b.link.Count(lab.Acquire), 5)
				}
				f.stop(a, b)
			})
		})
	}
}

func TestAKeyOfWorkersThatIsHeldByOthersIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 4)
		op := lab.Client(t, f.in)
		l, err := op.Acquire(t.Context(), name+"/workers", mongolock.Shared())
		require.NoError(t, err)
		a := f.start("a")
		err = <-a.over
		require.ErrorIs(t, err, mongolock.ErrModeMismatch)
		assert.EqualError(t, err, "assign: \"orders\": the key of the workers is held, and not by workers (`mongolock show orders/workers` says by whom): "+
			`mongolock: "orders/workers" is in use as shared, not as permits`)
		require.NoError(t, a.client.Close())
		require.NoError(t, l.Release())
		require.NoError(t, op.Close())
	})
}

// What is held by hand may keep all from working: they wait for it, slowly, and say so.
func TestWorkersThatWaitForWhatIsHeldByHandSaySoOnce(t *testing.T) {
	for called, test := range map[string]struct {
		key  string
		opts []mongolock.AcquireOption
		says string
	}{
		"the seats":                   {"/workers", nil, "assign: waits until the key of the workers is free"},
		"a seat of another number":    {"/workers", []mongolock.AcquireOption{mongolock.OneOf(1), mongolock.Note("resize to 32 partitions")}, "assign: waits until the key of the workers is free"},
		"a partition, as by a worker": {"/0003", []mongolock.AcquireOption{mongolock.Note("worker x of 99 partitions")}, "assign: waits until a partition of another number is free"},
	} {
		t.Run(called, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, l := newFleet(t, memstore.New(), 16), newLogs()
				op := lab.Client(t, f.in)
				held, err := op.Acquire(t.Context(), name+test.key, test.opts...)
				require.NoError(t, err)
				a := f.start("a", l.option())
				time.Sleep(time.Minute)
				assert.Empty(t, f.shares())
				before := a.link.Count(lab.Look, lab.List, lab.Acquire)
				time.Sleep(10 * time.Minute)
				assert.LessOrEqual(t, a.link.Count(lab.Look, lab.List, lab.Acquire)-before, 1300)
				assert.Equal(t, 1, l.counted(test.says))
				require.NoError(t, held.Release())
				time.Sleep(5 * time.Second)
				assert.Equal(t, map[string]int{"a": 16}, f.shares())
				require.NoError(t, op.Close())
				f.stop(a)
			})
		})
	}
}

// An operator edits the seats once. If their workers notice it at the same time none is left to tell the
// new number, and they come again with their own.
func TestWorkersHaveOneNumberAgainAfterItWasChangedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		var changed atomic.Pointer[time.Time]
		f.broken = func(l *link) {
			l.seen = func(s *store.Status) {
				if at := changed.Load(); at != nil && s.Key == name+"/workers" && s.Mode == store.Permits {
					for i := range s.Holders {
						if h := &s.Holders[i]; h.Since.Before(*at) {
							h.Note = strings.Replace(h.Note, "for 16 partitions", "for 24 partitions", 1)
						}
					}
				}
			}
		}
		a, b := f.start("a"), f.start("b")
		time.Sleep(time.Minute)
		changed.Store(new(time.Now()))
		time.Sleep(20 * time.Second)
		assert.Contains(t, []map[string]int{{"a": 8, "b": 8}, {"a": 12, "b": 12}}, f.shares())
		f.stop(a, b)
	})
}

func TestNotesOfOthersChangeNoPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		op := lab.Client(t, f.in)
		a := f.start("a")
		time.Sleep(time.Second)
		for _, note := range []string{"", "worker x", "worker x of weight 0 for 16 partitions", "worker x of weight -1 for 16 partitions", "worker x of weight 1001 for 16 partitions", "worker x of weight 9223372036854775807 for 16 partitions", "worker x of weight 1 for 0 partitions", "resize to 5001 partitions"} {
			_, err := op.Acquire(t.Context(), name+"/workers", mongolock.OneOf(10_000), mongolock.Note(note))
			require.NoError(t, err)
		}
		_, err := op.Acquire(t.Context(), name+"/4999", mongolock.Note("worker x of 7 partitions"))
		require.NoError(t, err)
		_, err = op.Acquire(t.Context(), name+"/+123", mongolock.Note("worker x of 200 partitions"))
		require.NoError(t, err)
		b := f.start("b")
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"a": 8, "b": 8}, f.shares())
		_, err = op.Break(t.Context(), name+"/0000", "test", 0)
		require.NoError(t, err)
		_, err = op.Acquire(t.Context(), name+"/0000", mongolock.Note("worker x by hand"))
		require.NoError(t, err)
		s, err := assign.Look(t.Context(), op, name)
		require.NoError(t, err)
		assert.Empty(t, s.Partitions[0].Worker)
		assert.NotEmpty(t, s.Partitions[0].Owner)
		require.NoError(t, op.Close())
		f.stop(a, b)
	})
}

func TestWorkIsStoppedBeforeOthersTakeOverIfTheStoreIsOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 8)
		a, b := f.start("a"), f.start("b")
		time.Sleep(time.Minute)
		a.link.set(true)
		time.Sleep(18 * time.Second)
		assert.Equal(t, map[string]int{"a": 4, "b": 4}, f.shares(), "an outage shorter than what is left of the leases is not noticed")
		time.Sleep(13 * time.Second)
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
		c := lab.Client(t, f.in)
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
		time.Sleep(5 * time.Minute) // its renewals go together by now
		before := map[lab.Op]int{}
		for _, kind := range []lab.Op{lab.Acquire, lab.Renew, lab.Release, lab.Look, lab.List, lab.Notify} {
			before[kind] = a.link.Count(kind)
		}
		time.Sleep(10 * time.Minute)
		for kind, most := range map[lab.Op]int{lab.Acquire: 0, lab.Renew: 61, lab.Release: 0, lab.List: 0, lab.Notify: 0, lab.Look: 95} {
			assert.LessOrEqual(t, a.link.Count(kind)-before[kind], most, kind)
		}
		f.stop(a, b)
	})
}
