package engine_test

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
	"github.com/mongolock/mongolock/store/memstore"
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

// Its client cannot be granted the key, which it shares itself, but another one could before it.
func TestAWriterBesideAReaderOfItsOwnClientKeepsItsPlaceAfterAFault(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		client := newClient(t, s)
		reader := acquire(t, client, "k", mongolock.Shared())
		writer := inBackground(t.Context(), client, "k", mongolock.MaxWait(10*time.Minute))
		time.Sleep(time.Second)
		s.On(lab.Acquire, lab.LoseReply(errNet))
		time.Sleep(10 * time.Second) // it has claimed the key once more
		s.On(lab.Acquire, nil)
		for range 10 {
			time.Sleep(12 * time.Second)
			_, err := newClient(t, s.Mem).TryAcquire(t.Context(), "k", mongolock.Shared())
			assert.ErrorIs(t, err, mongolock.ErrHeld, "a reader that comes later")
		}
		release(t, reader)
		assert.NoError(t, (<-writer).err)
	})
}

func TestAReaderWhoseWriterWasServedAndRanOutDoesNotWaitForTheEndOfItsPlace(t *testing.T) {
	for name, late := range map[string]time.Duration{
		"served at once":                         time.Millisecond,
		"served after the reader saw a free key": 300 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) { readsAfterItsWriter(t, late) })
	}
}

// readsAfterItsWriter has a writer in line be served late after the reader before it is over.
func readsAfterItsWriter(t *testing.T, late time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		claims := 0
		claim := func(mode store.Mode, ttl time.Duration, p store.Place) error { // of a process that is killed
			claims++
			limit := 0
			if mode == store.Exclusive {
				limit = 1
			}
			_, err := s.Acquire(t.Context(), store.Claim{
				Ref: store.Ref{Key: "k", ID: fmt.Sprint("dead-", claims), Mode: mode}, Limit: limit, TTL: ttl, Place: p, Owner: "dead",
			})
			return err
		}
		require.NoError(t, claim(store.Shared, 3*time.Second, ""))
		place := store.NewPlace(store.Exclusive, 1, 1, "dead")
		require.ErrorIs(t, claim(store.Exclusive, 30*time.Second, place), store.ErrHeld) // its place keeps readers out for 30 s
		began := time.Now()
		wait := inBackground(t.Context(), newClient(t, s), "k", mongolock.Shared())
		time.Sleep(3*time.Second + late) // virtual: the reader that was there is over
		require.NoError(t, claim(store.Exclusive, 2*time.Second, place))
		r := <-wait
		require.NoError(t, r.err)
		assert.InDelta(t, (5*time.Second + late).Seconds(), r.when.Sub(began).Seconds(), 0.1, "the writer is over after some five seconds, and its place would be after thirty")
		release(t, r.lease)
	})
}

// This controls TestAStreamOfOverlappingReadersDoesNotKeepAWriterOut: if readers ignore the
// line, they do keep it out.
func TestControlReadersThatIgnoreTheLineKeepAWriterOut(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		s.On(lab.Acquire, func(ctx context.Context, call *lab.Call) error { // readers join although a writer waits
			if call.Claim.Mode != store.Exclusive {
				all, _ := s.Mem.Look(ctx, []string{call.Key})
				for _, w := range all[0].Line {
					_, _ = s.Mem.Leave(ctx, call.Key, w.Place)
				}
			}
			return call.Do()
		})
		stop := streamOfReaders(t, s, 4*time.Second)
		defer stop()
		time.Sleep(10*time.Second + 700*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		l, err := newClient(t, s).Acquire(ctx, "k")
		assert.ErrorIs(t, err, context.DeadlineExceeded, "the writer got in, so the test proves nothing")
		if l != nil {
			release(t, l)
		}
	})
}
