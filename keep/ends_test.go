package keep_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/keep"
	"github.com/mongolock/mongolock/store/memstore"
)

func nothing(context.Context, *mongolock.Lease) error { return nil }

func TestAKeyThatIsIdleIsGivenUpAMinuteAfterItsGrantThoughNobodyWasHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		deaf := lab.Client(t, unheard{s}, mongolock.WithoutFeed())
		rival := lab.Client(t, s)
		key, err := keep.New(deaf, "k", time.Hour)
		require.NoError(t, err)
		require.NoError(t, key.Do(t.Context(), nothing))
		began := time.Now()
		l, err := rival.Acquire(t.Context(), "k")
		require.NoError(t, err)
		assert.InDelta(t, time.Minute, time.Since(began), float64(2*time.Second))
		require.NoError(t, l.Release())
		require.NoError(t, key.Close())
		require.NoError(t, deaf.Close())
		require.NoError(t, rival.Close())
	})
}

func TestTheErrorOfAWaitMatchesThatOfTheContextAndItsCause(t *testing.T) {
	inBubble(t, func(f *fixture) {
		long := f.background(func() { f.use(3 * time.Second) })
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(f.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		err := f.key.Do(ctx, nothing)
		assert.ErrorIs(t, err, why)
		assert.ErrorIs(t, err, context.Canceled)
		long.Wait()
	})
}

func TestTheErrorOfCloseIsThatOfNoContext(t *testing.T) {
	inBubble(t, func(f *fixture) {
		l, err := f.rival.Acquire(f.Context(), "k")
		require.NoError(t, err)
		for range 2 { // one waits for the rival, and the other for the first
			f.background(func() {
				err := f.key.Do(f.Context(), nothing)
				assert.ErrorIs(t, err, mongolock.ErrClosed)
				assert.NotErrorIs(t, err, context.Canceled)
			})
		}
		require.NoError(t, f.key.Close())
		require.NoError(t, l.Release())
	})
}

// The use under way may return before those that wait have learnt of Close.
func TestNoUseBeginsOnceCloseHas(t *testing.T) {
	for range 100 {
		inBubble(t, func(f *fixture) {
			var closing atomic.Bool
			for range 20 {
				go func() {
					assert.ErrorIs(t, f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error {
						assert.False(t, closing.Load(), "a use began")
						<-ctx.Done()
						return context.Cause(ctx)
					}), mongolock.ErrClosed)
				}()
			}
			synctest.Wait()
			closing.Store(true)
			assert.NoError(t, f.key.Close())
		})
	}
}

// So work that a use left behind under its context does not meet the next use.
func TestTheContextOfAUseEndsBeforeTheNextBegins(t *testing.T) {
	for range 200 {
		inBubble(t, func(f *fixture) {
			var all sync.WaitGroup
			last, end := context.WithCancel(f.Context())
			end()
			for range 50 {
				all.Go(func() {
					assert.NoError(t, f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error {
						assert.Error(t, last.Err())
						last = ctx
						return nil
					}))
				})
			}
			all.Wait()
		})
	}
}

// Shutdown waits for the holders, and the key is one though nobody uses it.
func TestAClientThatShutsDownIsNotHeldUpByAKeyThatIsKept(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.use(0)
		began := time.Now()
		assert.NoError(t, f.client.Shutdown(f.Context()))
		assert.Zero(t, time.Since(began))
		assert.ErrorIs(t, f.key.Do(f.Context(), nothing), mongolock.ErrClosed)
		assert.False(t, f.isHeld())
	}, mongolock.TTL(time.Hour))
}

func TestTheUsesOfAKeyEndWhenTheClientShutsDown(t *testing.T) {
	inBubble(t, func(f *fixture) {
		busy := f.background(func() {
			var err error
			for err == nil {
				err = f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error { return pause(ctx, time.Second) })
			}
			assert.ErrorIs(t, err, mongolock.ErrClosed)
		})
		began := time.Now()
		assert.NoError(t, f.client.Shutdown(f.Context()))
		assert.Zero(t, time.Since(began))
		busy.Wait()
	})
}

func TestAClientThatIsClosedFirstEndsTheUseAndTheKey(t *testing.T) {
	for _, used := range []bool{false, true} {
		inBubble(t, func(f *fixture) {
			f.use(0)
			if used {
				f.background(func() {
					err := f.key.Do(f.Context(), func(ctx context.Context, _ *mongolock.Lease) error { return pause(ctx, time.Hour) })
					assert.ErrorIs(t, err, mongolock.ErrClosed)
				})
			}
			began := time.Now()
			assert.NoError(t, f.client.Close())
			assert.Zero(t, time.Since(began))
			assert.ErrorIs(t, f.key.Do(f.Context(), nothing), mongolock.ErrClosed)
			assert.False(t, f.isHeld())
		})
	}
}

func TestAUseThatEndsItsGoroutineLeavesTheKeyForTheNext(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.background(func() {
			_ = f.key.Do(f.Context(), func(context.Context, *mongolock.Lease) error { runtime.Goexit(); return nil })
		}).Wait()
		f.use(0)
	})
}
