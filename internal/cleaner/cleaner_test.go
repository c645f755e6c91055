package cleaner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/store"
)

var errNet = errors.New("no answer")

// A fixture is a Cleaner whose store the test plays.
type fixture struct {
	*Cleaner
	clock monotonic.Clock
	stop  chan struct{}

	mu    sync.Mutex
	undo  func(ctx context.Context, key string) (bool, error)
	calls []string // keys of the attempts, in order
	freed []string
	most  int // attempts under way at a time
	now   int
}

// inBubble runs a test whose store answers err, until the test changes that.
func inBubble(t *testing.T, err error, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(err)
		defer f.host.Tasks.Wait()
		defer f.host.Tasks.Cut()
		test(t, f)
	})
}

func newFixture(err error) *fixture {
	f := &fixture{clock: monotonic.New(), stop: make(chan struct{})}
	f.undo = func(context.Context, string) (bool, error) { return err == nil, err }
	f.Cleaner = New(Host{
		Clock: &f.clock, Tasks: tasks.New(&f.clock), Call: 10 * time.Second, Stop: f.stop, Logger: slog.New(slog.DiscardHandler),
		Undo: func(ctx context.Context, claim store.Ref, _ *store.Ref) (bool, error) {
			f.mu.Lock()
			f.calls = append(f.calls, claim.Key)
			f.now++
			f.most = max(f.most, f.now)
			undo := f.undo
			f.mu.Unlock()
			defer func() {
				f.mu.Lock()
				f.now--
				f.mu.Unlock()
			}()
			return undo(ctx, claim.Key)
		},
		Freed: func(key string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.freed = append(f.freed, key)
		},
	})
	return f
}

func (f *fixture) answer(undo func(ctx context.Context, key string) (bool, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.undo, f.calls, f.freed, f.most = undo, nil, nil, 0
}

func (f *fixture) add(key string, ttl time.Duration) {
	f.Add(store.Ref{Key: key, ID: key}, nil, f.clock.Now().Add(ttl))
}

func (f *fixture) attempts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fixture) frees() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.freed)
}

func (f *fixture) atMost() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

func hang(ctx context.Context, _ string) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func settled(context.Context, string) (bool, error) { return true, nil }

func TestAClaimIsCleanedUpUntilTheStoreSaysThatItIsSettled(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.add("k", time.Hour)
		time.Sleep(time.Minute)
		assert.True(t, f.May("k"))
		assert.False(t, f.May("other"))
		assert.Empty(t, f.frees())
		assert.Greater(t, len(f.attempts()), 10, "attempts in a minute")
		assert.Less(t, len(f.attempts()), 40, "attempts in a minute")
		f.answer(settled)
		time.Sleep(6 * time.Second)
		assert.False(t, f.May("k"))
		assert.Zero(t, f.Len())
		assert.Equal(t, []string{"k"}, f.frees())
	})
}

func TestACleanUpEndsWhenTheGrantHasRunOut(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.add("k", 30*time.Second)
		time.Sleep(30*time.Second - time.Millisecond)
		assert.Len(t, f.Left(), 1)
		time.Sleep(time.Second)
		assert.Empty(t, f.Left())
		assert.Equal(t, []string{"k"}, f.frees())
	})
}

// An answer that proves nothing lets other claims be sent; the clean-up goes on.
func TestAnAnswerThatProvesNothingFreesTheKeyOnce(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.answer(func(context.Context, string) (bool, error) { return false, nil })
		f.add("k", 30*time.Second)
		time.Sleep(10 * time.Second)
		assert.False(t, f.May("k"))
		assert.Equal(t, 1, f.Len())
		assert.Equal(t, []string{"k"}, f.frees())
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"k", "k"}, f.frees())
	})
}

func TestFewAttemptsAreUnderWayAtATime(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.answer(func(context.Context, string) (bool, error) {
			time.Sleep(time.Second)
			return true, nil
		})
		for i := range 100 {
			f.add(fmt.Sprint(i), time.Hour)
		}
		start := time.Now()
		for f.Len() > 0 {
			time.Sleep(time.Second)
		}
		assert.Equal(t, atOnce, f.atMost())
		assert.InDelta(t, 100/atOnce, time.Since(start).Seconds(), 2)
	})
}

func TestACleanUpThatIsWaitedForDoesNotQueue(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		for i := range 100 {
			f.add(fmt.Sprint(i), time.Hour)
		}
		f.answer(hang)
		time.Sleep(5 * time.Second) // as many as may be under way are
		var waiting []string
		for i := range 100 {
			if key := fmt.Sprint(i); !slices.Contains(f.attempts(), key) {
				waiting = append(waiting, key)
			}
		}
		f.answer(func(ctx context.Context, key string) (bool, error) {
			if slices.Contains(waiting[:2], key) {
				return true, nil
			}
			return hang(ctx, key)
		})
		start := time.Now()
		for _, key := range waiting[:2] {
			assert.True(t, f.May(key))
			assert.NoError(t, f.Settle(t.Context(), key))
		}
		assert.Zero(t, time.Since(start))
	})
}

func TestSettleDoesNotCountAnAttemptThatBeganBeforeAndFails(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.answer(func(context.Context, string) (bool, error) {
			time.Sleep(time.Second)
			return false, errNet
		})
		f.add("k", time.Hour)
		synctest.Wait()
		f.answer(settled) // the attempt under way fails all the same
		assert.NoError(t, f.Settle(t.Context(), "k"))
		assert.NoError(t, f.Settle(t.Context(), "k"), "nothing is left")
	})
}

func TestSettleReturnsWhyItCouldNot(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.add("k", time.Hour)
		assert.Equal(t, ErrUnsettled, f.Settle(t.Context(), "k"))
		f.answer(hang)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errNet)
		defer cancel()
		start := time.Now()
		assert.Equal(t, errNet, f.Settle(ctx, "k"))
		assert.Equal(t, time.Second, time.Since(start))
		time.AfterFunc(time.Second, func() { close(f.stop) })
		assert.Equal(t, ErrStopped, f.Settle(t.Context(), "k"))
	})
}

// Close waits for the tasks, and a clean-up may need more than one attempt meanwhile.
func TestCleaningUpGoesOnWhileTheTasksAreWaitedFor(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.add("k", time.Hour)
		time.AfterFunc(3*time.Second, func() { f.answer(settled) })
		f.host.Tasks.Wait()
		assert.Empty(t, f.Left())
		f.add("late", time.Hour) // stays, and is named by Left
		assert.Len(t, f.Left(), 1)
	})
}

func TestClaimsAreLeftWhenTheTasksAreCutOff(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.answer(hang)
		f.add("k", time.Hour)
		synctest.Wait()
		f.host.Tasks.Cut()
		f.host.Tasks.Wait()
		assert.Equal(t, []store.Ref{{Key: "k", ID: "k"}}, f.Left())
	})
}

func TestACleanerIsFullAtItsLimit(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		for i := range Most {
			require.False(t, f.Full())
			f.add(fmt.Sprint(i), time.Minute)
		}
		assert.True(t, f.Full())
		time.Sleep(2 * time.Minute)
		assert.False(t, f.Full())
	})
}

// The memory that one attempt takes tells whether it looks at one claim or at all.
func TestAnAttemptCostsTheSameHoweverManyClaimsAreUnsettled(t *testing.T) {
	perAttempt := func(claims int) (bytes uint64) {
		inBubble(t, errNet, func(t *testing.T, f *fixture) {
			for i := range claims {
				f.add(fmt.Sprint(i), time.Hour)
			}
			time.Sleep(time.Minute)
			f.answer(f.undo)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			time.Sleep(10 * time.Second)
			runtime.ReadMemStats(&after)
			bytes = (after.TotalAlloc - before.TotalAlloc) / uint64(len(f.attempts()))
		})
		return bytes
	}
	few, many := perAttempt(50), perAttempt(Most/4)
	assert.Less(t, many, 2*few, "bytes for each attempt")
}

// In real time: it is a race between the callers and the attempts.
func TestNoCallerWaitsForAClaimThatIsSettledMeanwhile(t *testing.T) {
	f := newFixture(nil)
	defer f.host.Tasks.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range 500 {
		for j := range 16 {
			f.Add(store.Ref{Key: "k", ID: fmt.Sprint(i, " ", j)}, nil, f.clock.Now().Add(time.Hour))
		}
		var callers sync.WaitGroup
		for range 16 {
			callers.Go(func() { assert.NoError(t, f.Settle(ctx, "k"), "round %d", i) })
		}
		callers.Wait()
		if t.Failed() {
			return
		}
	}
}

func TestOfTwoClaimsOfAKeyOneMayStillHoldIt(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.Add(store.Ref{Key: "k", ID: "1"}, nil, f.clock.Now().Add(time.Hour))
		f.Add(store.Ref{Key: "k", ID: "2"}, nil, f.clock.Now().Add(time.Hour))
		first := true
		f.answer(func(context.Context, string) (bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if first {
				first = false
				return true, nil
			}
			return false, errNet
		})
		time.Sleep(10 * time.Second)
		assert.Len(t, f.Left(), 1)
		assert.True(t, f.May("k"))
		f.answer(settled)
		assert.NoError(t, f.Settle(t.Context(), "k"))
		assert.Empty(t, f.Left())
		assert.False(t, f.May("k"))
	})
}

func TestAVerdictSettlesAClaim(t *testing.T) {
	inBubble(t, store.ErrForeign, func(t *testing.T, f *fixture) {
		f.add("k", time.Hour)
		assert.NoError(t, f.Settle(t.Context(), "k"))
		assert.Zero(t, f.Len())
		assert.Equal(t, []string{"k"}, f.frees())
	})
}

func TestSettleIsContentWithAnAnswerThatProvesNothing(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		f.answer(func(context.Context, string) (bool, error) { return false, nil })
		f.add("k", time.Hour)
		assert.NoError(t, f.Settle(t.Context(), "k"))
		assert.Equal(t, 1, f.Len())
	})
}

func TestNoClaimWaitsForTheNextAttemptAtAnother(t *testing.T) {
	inBubble(t, errNet, func(t *testing.T, f *fixture) {
		for i := range 10 {
			f.add(fmt.Sprint(i), time.Hour)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			f.answer(func(context.Context, string) (bool, error) { return false, errNet })
			f.add(fmt.Sprint("next ", i), time.Hour)
			synctest.Wait()
			assert.Contains(t, f.attempts(), fmt.Sprint("next ", i), "tried at once")
		}
		f.answer(settled)
		for i := 9; i >= 0; i-- {
			start := time.Now()
			assert.NoError(t, f.Settle(t.Context(), fmt.Sprint(i)))
			assert.NoError(t, f.Settle(t.Context(), fmt.Sprint("next ", i)))
			assert.Zero(t, time.Since(start))
			assert.Equal(t, 2*i, f.Len())
		}
	})
}
