package leader_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A shift is when processes led, one after the other.
type shift struct {
	mu         sync.Mutex
	leading    int
	ended      time.Time
	gaps       []time.Duration
	overlapped bool
}

func (s *shift) work(ctx context.Context, _ leader.Term) error {
	s.mu.Lock()
	s.leading++
	s.overlapped = s.overlapped || s.leading > 1
	if !s.ended.IsZero() {
		s.gaps = append(s.gaps, time.Since(s.ended))
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.leading--
	s.ended = time.Now()
	s.mu.Unlock()
	return ctx.Err()
}

// deploy starts a process that needs so long to get ready, and returns what stops it and waits.
func (s *shift) deploy(t *testing.T, in store.Store, ready time.Duration, opts ...leader.Option) (stop func()) {
	t.Helper()
	client := lab.Client(t, in)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	opts = append(opts, leader.Warm(func(ctx context.Context) error {
		select {
		case <-time.After(ready):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	go func() { over <- leader.Run(ctx, client, "billing", s.work, opts...) }()
	return func() {
		cancel()
		assert.NoError(t, <-over)
		assert.NoError(t, client.Close())
	}
}

func TestARollingDeployOfWarmLeadersHasNoGap(t *testing.T) {
	for name, test := range map[string]struct {
		opts     []leader.Option
		atLeast  time.Duration
		atMost   time.Duration
		overlaps bool
	}{
		"awaiting the successor":    {[]leader.Option{leader.AwaitSuccessor(time.Minute)}, 0, 50 * time.Millisecond, false},
		"not awaiting":              {nil, 5 * time.Second, 5*time.Second + 50*time.Millisecond, false},
		"awaiting, but not so long": {[]leader.Option{leader.AwaitSuccessor(2 * time.Second)}, 3 * time.Second, 3*time.Second + 150*time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s shift
				in := memstore.New()
				stop := s.deploy(t, in, 0, test.opts...)
				time.Sleep(time.Minute)
				for range 5 { // each is started as the one before is stopped
					next := s.deploy(t, in, 5*time.Second, test.opts...)
					stop()
					stop = next
					time.Sleep(time.Minute)
				}
				stop()
				require.Len(t, s.gaps, 5)
				assert.False(t, s.overlapped)
				for _, gap := range s.gaps {
					assert.GreaterOrEqual(t, gap, test.atLeast)
					assert.LessOrEqual(t, gap, test.atMost)
				}
			})
		})
	}
}

func TestResignWaitsForASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := memstore.New()
		client := lab.Client(t, in)
		c, err := leader.New(client, "billing", leader.AwaitSuccessor(time.Minute))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			over <- c.Run(ctx, func(ctx context.Context, _ leader.Term) error { <-ctx.Done(); return ctx.Err() })
		}()
		synctest.Wait()
		resigned := make(chan error)
		go func() { resigned <- c.Resign(t.Context()) }()
		time.Sleep(30 * time.Second)
		assert.True(t, c.IsLeader(), "there is no other candidate")
		var s shift
		stop := s.deploy(t, in, 0)
		require.NoError(t, <-resigned)
		assert.False(t, c.IsLeader())
		cancel()
		require.NoError(t, <-over)
		stop()
		require.NoError(t, client.Close())
	})
}

// One that is told to resign every second, as by a health check, looks no more often than one that is told once.
func TestASuccessorIsLookedForOnceHoweverOftenALeaderResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := lab.New(memstore.New())
		client := lab.Client(t, in)
		c, err := leader.New(client, "billing", leader.AwaitSuccessor(time.Hour))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		over := make(chan error)
		go func() {
			over <- c.Run(ctx, func(ctx context.Context, _ leader.Term) error { <-ctx.Done(); cancel(); return ctx.Err() })
		}()
		synctest.Wait()
		for range 20 {
			short, cancel := context.WithTimeout(ctx, time.Second)
			require.ErrorIs(t, c.Resign(short), context.DeadlineExceeded)
			cancel()
		}
		assert.LessOrEqual(t, in.Count(lab.Look), 210, "looks in 20 s, of which one is made every 100 ms")
		require.NoError(t, <-over)
		require.NoError(t, client.Close())
	})
}

func TestAProcessThatIsNotReadyDoesNotStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := memstore.New()
		client := lab.Client(t, in)
		var tries atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			over <- leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error { <-ctx.Done(); return ctx.Err() },
				leader.WithLogger(slog.New(slog.DiscardHandler)), leader.Warm(func(context.Context) error { tries.Add(1); return errors.New("no rates yet") }))
		}()
		time.Sleep(time.Minute)
		status, err := client.Inspect(t.Context(), "billing")
		require.NoError(t, err)
		assert.True(t, status.Free())
		assert.Greater(t, tries.Load(), int32(3))
		assert.Less(t, tries.Load(), int32(200), "not in a hot loop")
		cancel()
		require.NoError(t, <-over)
		require.NoError(t, client.Close())
	})
}

func TestADeadlineOfRunIsNoErrorOfAWarmLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lab.Client(t, memstore.New())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		require.NoError(t, leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error { <-ctx.Done(); return ctx.Err() },
			leader.AwaitSuccessor(time.Minute)))
		assert.Equal(t, time.Hour+time.Minute, time.Since(began))
		require.NoError(t, client.Close())
	})
}

func TestTheOptionsOfWarmLeadersAreChecked(t *testing.T) {
	client := lab.Client(t, memstore.New())
	_, err := leader.New(client, "k", leader.Priority(10))
	require.ErrorContains(t, err, "Priority(10): must be between 0 and 9")
	_, err = leader.New(client, strings.Repeat("k", 1020), leader.Priority(1))
	require.ErrorContains(t, err, "leader: Priority: \"kkk")
	_, err = leader.New(client, strings.Repeat("k", 1020), leader.Priority(0))
	require.NoError(t, err)
	_, err = leader.New(client, "k", leader.Warm(nil), leader.AwaitSuccessor(0))
	require.EqualError(t, err, "leader: Warm(nil): must not be nil\nleader: AwaitSuccessor(0s): must be positive")
	require.NoError(t, client.Close())
}
