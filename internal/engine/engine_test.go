package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func newEngine(t *testing.T, s store.Store) *Engine {
	e := New(s, Config{Owner: "test", Margin: -1, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func exclusive(ttl time.Duration) *Terms {
	return &Terms{TTL: ttl, Mode: store.Exclusive, Limit: 1}
}

func acquire(t *testing.T, e *Engine, key string, terms *Terms) *Hold {
	h, err := e.Acquire(t.Context(), key, terms)
	require.NoError(t, err)
	return h
}

// A context of a lease takes as much memory as the lease.
func TestALeaseThatIsGrantedAtOnceHasNoContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.Nil(t, acquire(t, newEngine(t, memstore.New()), "k", exclusive(ttl)).outside.contexts)
	})
}

// A release of the holder's own may have settled the lease as Close ends.
func TestCloseNamesNoLeaseThatIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, memstore.New())
		h := acquire(t, e, "smtp", exclusive(ttl))
		assert.ErrorContains(t, e.leftBehind(nil), `"smtp" is not released`)
		require.NoError(t, h.Release())
		assert.NoError(t, e.leftBehind([]*Hold{h}))
	})
}

// A machine can be suspended: its timers stop, and the store's clock goes on.
type machine struct {
	slept  atomic.Int64
	engine *Engine
	store  *memstore.Store
}

func newMachine(t *testing.T, counted bool) *machine {
	m := &machine{}
	m.store = memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(time.Duration(m.slept.Load())) }))
	m.engine = newEngine(t, m.store)
	if counted {
		m.engine.measure(monotonic.MeterFrom(func() time.Duration { return time.Duration(m.slept.Load()) }))
	}
	return m
}

// trusted reports whether a holder trusts its lease right after its machine slept for an hour, although another client
// was granted the key.
func trusted(t *testing.T, counted, renewed bool) (trusted bool) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, counted)
		terms := exclusive(ttl)
		terms.NoRenewal = !renewed
		h := acquire(t, m.engine, "k", terms)
		time.Sleep(5 * time.Second)
		m.slept.Add(int64(time.Hour))
		_, err := newEngine(t, m.store).Try(t.Context(), "k", exclusive(ttl))
		require.NoError(t, err, "the key is free by the store's clock")
		left, _ := h.Glance()
		trusted = left > 0 || h.Err() == nil
	})
	return trusted
}

func TestALeaseThatExpiredDuringASuspendIsOverAtTheNextLook(t *testing.T) {
	assert.False(t, trusted(t, true, true))
	assert.False(t, trusted(t, true, false))
}

// The control: the time asleep is not counted.
func TestControlWithoutCountingSleepAnExpiredLeaseIsTrusted(t *testing.T) {
	assert.True(t, trusted(t, false, true))
}

func TestWithinASecondAfterASuspendExpiredLeasesEndAndOthersAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, true)
		short := acquire(t, m.engine, "short", exclusive(ttl))
		terms := exclusive(time.Minute)
		terms.NoRenewal = true
		once := acquire(t, m.engine, "once", terms)
		long := acquire(t, m.engine, "long", exclusive(time.Hour))
		time.Sleep(5 * time.Second)
		m.slept.Add(int64(40 * time.Minute))
		resumed := time.Now()
		<-short.Done()
		<-once.Done()
		assert.LessOrEqual(t, time.Since(resumed), monotonic.WatchPeriod)
		assert.ErrorIs(t, short.Err(), ErrLost)
		time.Sleep(monotonic.WatchPeriod)
		synctest.Wait()
		left, err := long.Glance()
		assert.NoError(t, err)
		assert.Greater(t, left, 59*time.Minute-time.Second, "renewed at once")
	})
}

func TestAClaimAfterASuspendIsTrustedForItsWholeTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, true)
		m.slept.Add(int64(time.Hour))
		left, err := acquire(t, m.engine, "k", exclusive(ttl)).Glance()
		require.NoError(t, err)
		assert.Equal(t, ttl-margin, left)
	})
}

// resumedWaiter returns how long after a suspend a waiter is granted a key that ran out meanwhile. Its machine holds
// nothing else.
func resumedWaiter(t *testing.T, counted bool) (after time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, counted)
		terms := exclusive(10 * time.Minute)
		terms.NoRenewal = true
		acquire(t, newEngine(t, m.store), "k", terms)
		granted := make(chan time.Time, 1)
		go func() {
			_, err := m.engine.Acquire(context.Background(), "k", exclusive(ttl))
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
	assert.LessOrEqual(t, resumedWaiter(t, true), monotonic.WatchPeriod)
}

// The control: without the time asleep the waiter sleeps on.
func TestControlWithoutCountingSleepAWaiterSleepsOn(t *testing.T) {
	assert.Greater(t, resumedWaiter(t, false), 10*time.Second)
}
