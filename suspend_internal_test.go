package mongolock

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/suspend"
	"github.com/mongolock/mongolock/store/memstore"
)

// A machine can be suspended: its timers stop, and the store's clock goes on.
type machine struct {
	slept  atomic.Int64
	client *Client
	store  *memstore.Store
}

func newMachine(t *testing.T, counted bool) *machine {
	m := &machine{}
	m.store = memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(time.Duration(m.slept.Load())) }))
	var err error
	m.client, err = NewWithStore(m.store, WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.client.Close() })
	if counted {
		m.client.measure(suspend.From(func() time.Duration { return time.Duration(m.slept.Load()) }))
	}
	return m
}

// trusted reports whether a holder trusts its lease right after its machine slept for an hour,
// although another client was granted the key.
func trusted(t *testing.T, counted bool, opts ...AcquireOption) (trusted bool) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, counted)
		l, err := m.client.Acquire(t.Context(), "k", opts...)
		require.NoError(t, err)
		ctx := l.Context(t.Context())
		time.Sleep(5 * time.Second)
		m.slept.Add(int64(time.Hour))
		other, err := NewWithStore(m.store)
		require.NoError(t, err)
		defer other.Close()
		_, err = other.TryAcquire(t.Context(), "k")
		require.NoError(t, err, "the key is free by the store's clock")
		trusted = ctx.Err() == nil || l.Remaining() > 0 || l.Err() == nil
	})
	return trusted
}

func TestALeaseThatExpiredDuringASuspendIsOverAtTheNextLook(t *testing.T) {
	assert.False(t, trusted(t, true))
	assert.False(t, trusted(t, true, NoRenewal()))
}

// The control: the time asleep is not counted.
func TestControlWithoutCountingSleepAnExpiredLeaseIsTrusted(t *testing.T) {
	assert.True(t, trusted(t, false))
}

func TestWithinASecondAfterASuspendExpiredLeasesEndAndOthersAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, true)
		short, err := m.client.Acquire(t.Context(), "short")
		require.NoError(t, err)
		once, err := m.client.Acquire(t.Context(), "once", NoRenewal(), TTL(time.Minute))
		require.NoError(t, err)
		long, err := m.client.Acquire(t.Context(), "long", TTL(time.Hour))
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		m.slept.Add(int64(40 * time.Minute))
		resumed := time.Now()
		<-short.Done()
		<-once.Done()
		assert.LessOrEqual(t, time.Since(resumed), suspend.Period)
		assert.ErrorIs(t, short.Err(), ErrLost)
		time.Sleep(suspend.Period)
		synctest.Wait()
		assert.NoError(t, long.Err())
		assert.Greater(t, long.Remaining(), 59*time.Minute-time.Second, "renewed at once")
	})
}

func TestAClaimAfterASuspendIsTrustedForItsWholeTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, true)
		m.slept.Add(int64(time.Hour))
		l, err := m.client.Acquire(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, 29*time.Second, l.Remaining())
	})
}

// resumedWaiter returns how long after a suspend a waiter is granted a key that ran out
// meanwhile. Its machine holds nothing else.
func resumedWaiter(t *testing.T, counted bool) (after time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, counted)
		other, err := NewWithStore(m.store, WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = other.Close() })
		_, err = other.Acquire(t.Context(), "k", NoRenewal(), TTL(10*time.Minute))
		require.NoError(t, err)
		granted := make(chan time.Time, 1)
		go func() {
			_, err := m.client.Acquire(t.Context(), "k")
			assert.NoError(t, err)
			granted <- time.Now()
		}()
		time.Sleep(5 * time.Second)
		m.slept.Add(int64(time.Hour))
		resumed := time.Now()
		after = (<-granted).Sub(resumed)
	})
	return after
}

func TestWithinASecondAfterASuspendWaitersLook(t *testing.T) {
	assert.LessOrEqual(t, resumedWaiter(t, true), suspend.Period)
}

// The control: without the time asleep the waiter sleeps on.
func TestControlWithoutCountingSleepAWaiterSleepsOn(t *testing.T) {
	assert.Greater(t, resumedWaiter(t, false), 10*time.Second)
}
