package mongolock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
)

// streamOfReaders keeps a key shared without a gap: each reader, with a client of its own,
// acquires the key before the last one releases it.
func streamOfReaders(t *testing.T, s store.Store, hold time.Duration, opts ...mongolock.ClientOption) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 4 {
		c := newClient(t, s, opts...)
		wg.Go(func() {
			time.Sleep(time.Duration(i) * hold / 4)
			for ctx.Err() == nil {
				l, err := c.Acquire(ctx, "k", mongolock.Shared())
				if err != nil {
					return
				}
				time.Sleep(hold)
				_ = l.Release()
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

func TestAStreamOfOverlappingReadersDoesNotKeepAWriterOut(t *testing.T) {
	for _, feed := range []bool{true, false} {
		t.Run(fmt.Sprint("feed ", feed), func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				var opts []mongolock.ClientOption
				slack := 10 * time.Millisecond
				if !feed {
					opts, slack = append(opts, mongolock.WithoutFeed()), 1200*time.Millisecond // one poll
				}
				const hold = 4 * time.Second
				stop := streamOfReaders(t, b, hold, opts...)
				defer stop()
				writer := newClient(t, b, opts...)
				for range 5 {
					time.Sleep(10*time.Second + 700*time.Millisecond)
					mustBeHeld(t, b, "k")
					start := time.Now()
					l := acquire(t, writer, "k")
					// The writer waits for the readers that were there when it came, and for no others.
					tookBetween(t, start, time.Millisecond, hold+slack)
					release(t, l)
				}
			})
		})
	}
}

func TestAWriterThatGivesUpDoesNotGiveUpAnotherWritersPlace(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		one, two := newClient(t, b), newClient(t, b)
		reader := acquire(t, one, "k", mongolock.Shared())
		ctx, cancel := context.WithCancel(t.Context())
		gives, stays := inBackground(ctx, two, "k"), inBackground(t.Context(), two, "k")
		time.Sleep(time.Second)
		cancel()
		assert.ErrorIs(t, (<-gives).err, mongolock.ErrHeld)
		synctest.Wait()
		_, err := one.TryAcquire(t.Context(), "k", mongolock.Shared())
		assert.ErrorIs(t, err, mongolock.ErrHeld, "a reader is held while a writer waits")
		release(t, reader)
		r := <-stays
		require.NoError(t, r.err)
		release(t, r.lease)
	})
}

// A writer that died while it waited keeps readers out for half a minute.
func TestAWriterThatDiedWaitingKeepsReadersOutForHalfAMinute(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		one := newClient(t, b)
		reader := acquire(t, one, "k", mongolock.Shared())
		dead := store.Claim{Ref: store.Ref{Key: "k", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: 20 * time.Second, Place: store.NewPlace(store.Exclusive, 1, 1, "")}
		_, err := b.Mem.Acquire(t.Context(), dead)
		require.ErrorIs(t, err, store.ErrHeld)
		start := time.Now()
		b.Reset()
		l := acquire(t, newClient(t, b), "k", mongolock.Shared())
		tookBetween(t, start, 30*time.Second, 30*time.Second+50*time.Millisecond)
		assert.LessOrEqual(t, b.Count(lab.Acquire), 4, "claims sent meanwhile")
		release(t, l)
		release(t, reader)
	})
}

// A writer has to show that it lives for as long as it waits.
func TestAWriterKeepsReadersOutForAsLongAsItWaits(t *testing.T) {
	for _, feed := range []bool{true, false} {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			var opts []mongolock.ClientOption
			if !feed {
				opts = append(opts, mongolock.WithoutFeed())
			}
			one, two := newClient(t, b, opts...), newClient(t, b, opts...)
			reader := acquire(t, one, "k", mongolock.Shared())
			writer := inBackground(t.Context(), two, "k", mongolock.TTL(time.Second), mongolock.MaxHold(time.Hour))
			time.Sleep(time.Second)
			for range 100 {
				time.Sleep(1300 * time.Millisecond)
				_, err := one.TryAcquire(t.Context(), "k", mongolock.Shared())
				require.ErrorIs(t, err, mongolock.ErrHeld, "a reader is held while a writer waits")
			}
			release(t, reader)
			release(t, (<-writer).lease)
		})
	}
}
