package mongolock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestALeaseOfThirtySecondsIsHeldForTwoDays(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		hours := fewer.Of(48)
		time.Sleep(time.Duration(hours)*time.Hour + time.Second) // not at the moment of a renewal, which may be under way then
		require.NoError(t, l.Err())
		// One renewal every third of the TTL, and nothing else.
		assert.InDelta(t, 360*hours, b.Count(lab.Renew), 1, "renewals")
		assert.Equal(t, b.Count(lab.Renew)+1, b.Count(), "commands")
		release(t, l)
		b.Reset()
		time.Sleep(time.Hour)
		assert.Zero(t, b.Count(), "commands in the hour after the release")
	})
}

func TestAKeyIsHeldUntilTheTTLIsOverAndFreeAfterIt(t *testing.T) {
	for _, shift := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("server clock ", shift), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(shift) }))
				down := lab.New(mem) // the holder's connection to the store; releases fail
				one, two := newClient(t, down), newClient(t, mem)
				l := acquire(t, one, "k", mongolock.NoRenewal(), mongolock.TTL(10*time.Second))
				down.On(lab.Release, lab.Fail(errNet))
				time.Sleep(9 * time.Second)
				assert.True(t, isOver(l.Done()), "the holder is told one margin before the end")
				time.Sleep(time.Second - time.Nanosecond)
				_, err := two.TryAcquire(t.Context(), "k")
				assert.ErrorIs(t, err, mongolock.ErrHeld, "just before the end")
				time.Sleep(time.Nanosecond)
				l2, err := two.TryAcquire(t.Context(), "k")
				require.NoError(t, err, "at the end")
				require.Greater(t, l2.Token(), l.Token())
				time.Sleep(time.Minute) // the release of the first lease is repeated
				assert.NoError(t, l2.Err(), "the first lease's release must not affect the second lease")
			})
		})
	}
}

func TestAServerClockThatIsAnHourOffDoesNotWeakenExclusion(t *testing.T) {
	for _, shift := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(shift) }))
			one, two := newClient(t, mem), newClient(t, mem)
			l := acquire(t, one, "k", mongolock.TTL(time.Second))
			wait := inBackground(t.Context(), two, "k")
			time.Sleep(time.Minute)
			assert.NoError(t, l.Err(), "server clock %v", shift)
			assert.Empty(t, wait, "the rival got the key; server clock %v", shift)
			release(t, l)
			r := <-wait
			require.NoError(t, r.err)
			tookBetween(t, r.when, 0, 0)
		})
	}
}

func TestALeaseWithALongMaxHoldSurvivesASlowGrant(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		b.On(lab.Acquire, lab.Slow(0, 6*time.Second))
		l := acquire(t, newClient(t, b), "k", mongolock.TTL(10*time.Second), mongolock.MaxHold(time.Hour))
		time.Sleep(time.Minute)
		assert.NoError(t, l.Err())
	})
}

const maxStall = time.Minute

func TestWorkThatReportsProgressKeepsItsLeaseAndWorkThatStopsLosesIt(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k", mongolock.MaxStall(maxStall))
		ctx := l.Context(t.Context())
		for range 600 { // ten hours
			time.Sleep(maxStall - time.Millisecond)
			assert.NoError(t, ctx.Err())
			l.Progress()
		}
		assert.Greater(t, l.Remaining(), 18*time.Second, "renewed as any")
		last := time.Now()
		rival := inBackground(t.Context(), newClient(t, b.Mem), "k")
		<-l.Done()
		tookBetween(t, last, maxStall, maxStall)
		b.Reset()
		for _, err := range []error{l.Err(), context.Cause(ctx), l.Renew(t.Context())} {
			assert.ErrorIs(t, err, mongolock.ErrStalled)
			assert.ErrorIs(t, err, mongolock.ErrLost)
		}
		assert.Zero(t, l.Remaining())
		l.Progress()
		assert.ErrorIs(t, l.Err(), mongolock.ErrStalled, "it is too late for progress")

		next := <-rival
		require.NoError(t, next.err)
		gap := next.when.Sub(last) - maxStall
		assert.GreaterOrEqual(t, gap, time.Second, "a margin in which the work can stop")
		assert.Less(t, gap, 2*time.Second)
		time.Sleep(time.Hour)
		assert.Zero(t, b.Count(lab.Renew), "renewals of a stalled lease")
		assert.NoError(t, next.lease.Err())
	})
}

func TestALeaseWithoutProgressEndsThoughItsTTLIsLonger(t *testing.T) {
	for name, opts := range map[string][]mongolock.AcquireOption{
		"long TTL": {mongolock.TTL(time.Hour)}, "not renewed": {mongolock.TTL(time.Hour), mongolock.NoRenewal()},
		"reader": {mongolock.TTL(time.Hour), mongolock.Shared()}, "short TTL": {mongolock.TTL(time.Second)},
		"MaxHold is longer": {mongolock.MaxHold(2 * maxStall)},
	} {
		t.Run(name, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, s *lab.Store) {
				l := acquire(t, newClient(t, s, mongolock.MaxStall(maxStall)), "k", opts...)
				start := time.Now()
				assert.LessOrEqual(t, l.Remaining(), maxStall)
				<-l.Done()
				tookBetween(t, start, maxStall, maxStall)
				assert.ErrorIs(t, l.Err(), mongolock.ErrStalled)
			})
		})
	}
}

func TestTheFirstEndOfALeaseIsItsCause(t *testing.T) {
	for name, c := range map[string]struct {
		opt  mongolock.AcquireOption
		down bool
		want error
	}{
		"MaxHold":   {mongolock.MaxHold(maxStall / 2), false, mongolock.ErrMaxHold},
		"no server": {mongolock.TTL(maxStall / 2), true, mongolock.ErrLost},
		"no stall":  {mongolock.MaxStall(time.Hour), true, mongolock.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				l := acquire(t, newClient(t, b, mongolock.MaxStall(maxStall)), "k", c.opt)
				if c.down {
					b.All(lab.Hang)
				}
				<-l.Done()
				assert.ErrorIs(t, l.Err(), c.want)
				assert.NotErrorIs(t, l.Err(), mongolock.ErrStalled)
			})
		})
	}
}

func TestProgressOfALeaseWithoutMaxStallChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquire(t, newClient(t, memstore.New()), "k")
		l.Progress()
		time.Sleep(24 * time.Hour)
		assert.NoError(t, l.Err())
		release(t, l)
		l.Progress()
		assert.ErrorIs(t, l.Err(), mongolock.ErrReleased)
	})
}

func TestDoEndsWorkThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), mongolock.MaxStall(maxStall))
		start := time.Now()
		err := mongolock.Do(t.Context(), c, "k", func(ctx context.Context, l *mongolock.Lease) error {
			for range 10 {
				time.Sleep(maxStall / 2)
				l.Progress()
			}
			<-ctx.Done()
			return ctx.Err()
		})
		assert.ErrorIs(t, err, mongolock.ErrStalled)
		tookBetween(t, start, 6*maxStall, 6*maxStall+2*time.Second)
	})
}

// Keys and notes that cannot come back byte for byte are refused, and no others.
func FuzzOnlyInvalidKeysAndNotesAreRefused(f *testing.F) {
	for _, s := range []string{"nightly-report", "", "$x", "a.b", "\x00", "🔒", "a/b", " ", "\xff", strings.Repeat("k", 1025)} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, key, note string) {
		c := newClient(t, memstore.New())
		accepts := func(key, note string) bool {
			l, err := c.TryAcquire(t.Context(), key, mongolock.Note(note))
			if err != nil {
				return false
			}
			seen, err := c.Inspect(t.Context(), key)
			require.NoError(t, err)
			assert.Equal(t, key, seen.Key)
			assert.Equal(t, note, seen.Holders[0].Note)
			release(t, l)
			return true
		}
		assert.Equal(t, key != "" && len(key) <= 1024 && utf8.ValidString(key), accepts(key, ""), "key %q", key)
		assert.Equal(t, len(note) <= 1024 && utf8.ValidString(note), accepts("k", note), "note %q", note)
	})
}
