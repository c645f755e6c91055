package once_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/once"
)

// A storm has four processes call Do or TryDo until it is done, while the set elects members whose
// clocks are apart, processes are cut off, and commands and replies are late.
type storm struct {
	*world
	mu   sync.Mutex // protects dice
	dice *rand.Rand

	late atomic.Int32 // runs that began when the record said that it is done
}

func (s *storm) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dice.IntN(n)
}

func (s *storm) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.draw(int(most-least)))
}

// blow runs a storm. Heedless work goes on when its context ends.
func blow(t *testing.T, seed uint64, heedless bool) (overlap bool) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := &storm{world: w, dice: rand.New(rand.NewPCG(seed, 7))}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var cut [4]atomic.Int64 // until when a process is cut off
		began := time.Now()
		var done atomic.Bool
		var working sync.WaitGroup
		calls := []func(context.Context, string, docset.Trouble, once.Func, ...once.Option) error{w.do, w.tryDo}
		for i := range cut {
			trouble := func(docdb.Command) (time.Duration, bool) {
				if left := time.Duration(cut[i].Load()) - time.Since(began); left > 0 {
					return left, s.draw(2) == 0
				}
				return 0, true
			}
			working.Go(func() {
				for ctx.Err() == nil {
					err := calls[i%2](ctx, fmt.Sprint("pod-", i), trouble, func(ctx context.Context, _ once.Run) error {
						if done.Load() {
							s.late.Add(1)
						}
						long := s.between(time.Second, 2*time.Minute)
						if heedless {
							time.Sleep(long) // virtual: it does not look at ctx
						}
						return takes(long)(ctx, once.Run{})
					})
					if err == nil {
						done.Store(true)
						return
					}
					time.Sleep(s.between(0, 5*time.Second)) // virtual: before it tries again
				}
			})
		}
		working.Go(func() {
			for ctx.Err() == nil && !done.Load() {
				time.Sleep(s.between(time.Second, 15*time.Second)) // virtual: until the weather changes
				if s.draw(3) == 0 {
					w.Elect(s.between(0, 40*time.Second))
				}
				cut[s.draw(len(cut))].Store(int64(time.Since(began) + s.between(500*time.Millisecond, 30*time.Second)))
			}
		})
		working.Wait()
		overlap = w.overlap
		if heedless {
			return
		}
		require.NoError(t, ctx.Err(), "seed %d: it is never done", seed)
		assert.Zero(t, s.late.Load(), "seed %d: runs after it was done", seed)
		w.ranApart()
		r, err := once.Look(t.Context(), w.collection(docset.None), name)
		require.NoError(t, err)
		dones := 0
		for _, e := range r.Past {
			if e.Outcome == once.Succeeded {
				dones++
			}
		}
		assert.Equal(t, 1, dones, "seed %d: %v", seed, r.Past)
		assert.True(t, r.Done)
	})
	return overlap
}

func TestNoStormMakesTwoRunsAtATimeOrOneAfterItIsDone(t *testing.T) {
	for seed := range uint64(6) {
		blow(t, seed, false)
	}
}

// The control: work that does not look at its context runs beside the next one, in some seed.
func TestControlAStormMakesHeedlessWorkOverlap(t *testing.T) {
	for seed := range uint64(30) {
		if blow(t, seed, true) {
			t.Logf("by seed %d", seed)
			return
		}
	}
	t.Error("no storm parts a runner from its lease: what do the others show?")
}
