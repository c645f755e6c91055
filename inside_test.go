package mongolock

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/suspend"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/store/memstore"
)

// A context of a lease takes as much memory as the lease.
func TestKeysGrantedAtOnceNeedNoContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewWithStore(memstore.New())
		require.NoError(t, err)
		defer c.Close()
		all, err := AcquireAll(t.Context(), c, []string{"a", "b", "c"})
		require.NoError(t, err)
		for _, l := range all {
			assert.Nil(t, l.holding.tether, l.Key())
		}
	})
}

func TestWhichLimitEndsALease(t *testing.T) {
	const second, minute = monotonic.Moment(time.Second), monotonic.Moment(time.Minute)
	for _, c := range []struct {
		what    string
		limits  term.Limits
		trusted monotonic.Moment
		why     error
	}{
		{"no limit", term.Limits{}, minute, errNotRenewed},
		{"MaxHold", term.Limits{MaxHold: second}, minute, ErrMaxHold},
		{"MaxStall", term.Limits{Stall: second}, minute, ErrStalled},
		{"the sooner of both", term.Limits{MaxHold: 2 * second, Stall: second}, minute, ErrStalled},
		{"the sooner of both", term.Limits{MaxHold: second, Stall: 2 * second}, minute, ErrMaxHold},
		{"all at once", term.Limits{MaxHold: second, Stall: second}, second, ErrStalled},
		{"MaxHold as the trust ends", term.Limits{MaxHold: second}, second, ErrMaxHold},
		{"trust before both", term.Limits{MaxHold: minute, Stall: minute}, second, errNotRenewed},
	} {
		h := holding{limits: c.limits}
		h.term, _ = term.Granted(time.Minute, 0, 0, 0, time.Duration(c.trusted))
		assert.Equal(t, c.why, h.whyOver(), c.what)
	}
}

// A text is refused as a ticket, or parsed to what it would be written from.
func FuzzATicketIsRefusedOrParsed(f *testing.F) {
	f.Add(ticket{Key: "k", ID: "ID", Token: 7, TTL: time.Minute, Note: "n"}.String())
	f.Add(ticketMark)
	f.Add(ticketMark + "e30")
	f.Add("mongolock2.e30")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseTicket(text)
		if err != nil {
			return
		}
		twice, err := parseTicket(parsed.String())
		require.NoError(t, err)
		assert.Equal(t, parsed, twice)
	})
}

// Keys and notes that cannot come back byte for byte are refused, and no others.
func FuzzOnlyInvalidKeysAndNotesAreRefused(f *testing.F) {
	for _, s := range []string{"nightly-report", "", "$x", "a.b", "\x00", "🔒", "a/b", " ", "\xff", strings.Repeat("k", 1025)} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, key, note string) {
		badKey := key == "" || len(key) > 1024 || !utf8.ValidString(key)
		badNote := len(note) > 1024 || !utf8.ValidString(note)
		assert.Equal(t, badKey, checkText("key", key, 1, maxKey) != nil, "key %q", key)
		assert.Equal(t, badNote, checkText("note", note, 0, maxNote) != nil, "note %q", note)
	})
}

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
