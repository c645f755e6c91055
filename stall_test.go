package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

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
