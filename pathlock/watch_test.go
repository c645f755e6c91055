package pathlock_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/pathlock"
)

func TestEveryWatcherIsToldOfAnExpiryOnceAndAtItsMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watchers = 3
		storage := pathlock.NewMemory()
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var got [watchers][]string
		for i := range watchers {
			events, err := treeOn(t, storage).Watch(ctx)
			require.NoError(t, err)
			go func() {
				for event, err := range events {
					got[i] = append(got[i], fmt.Sprint(event.Kind, event.Lock.Path, event.At.Sub(start).Round(time.Second), time.Since(start).Round(10*time.Millisecond), err))
				}
			}()
		}
		writer := treeOn(t, storage)
		l, err := writer.Lock(t.Context(), exclusive("/a", 10*time.Second))
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		_, err = writer.Refresh(t.Context(), l.Token) // which makes it later
		require.NoError(t, err)
		time.Sleep(time.Minute)
		cancel()
		synctest.Wait()
		for i := range watchers {
			assert.Equal(t, []string{"added/a0s 0s <nil>", "expired/a15s 15s <nil>"}, got[i], "watcher %d", i)
		}
	})
}

func TestWithoutWatchersNoEventsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.NewMemory()
		tree := treeOn(t, storage)
		for range 3 {
			_, err := tree.Lock(t.Context(), exclusive("/a", time.Second))
			require.NoError(t, err)
			time.Sleep(2 * time.Second)
		}
		_ = storage.View(t.Context(), "tree", func(doc *pathlock.Document, _ pathlock.Clock) {
			assert.Zero(t, doc.Seq)
			assert.Empty(t, doc.Log)
			n := 0
			for range doc.Locks() {
				n++
			}
			assert.Equal(t, 1, n, "the last one has run out, but nobody has written since")
		})
	})
}

// told reads so many events.
func told(t *testing.T, events iter.Seq2[pathlock.Event, error], n int) (got []string) {
	t.Helper()
	for event, err := range events {
		require.NoError(t, err)
		got = append(got, fmt.Sprint(event.Kind, event.Lock.Path))
		if len(got) == n {
			break
		}
	}
	return got
}

func TestAWatcherThatFallsBehindIsResetAndToldOfAllLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t)
		lock := func(path string) pathlock.Lock {
			l, err := tree.Lock(t.Context(), exclusive(path, time.Hour))
			require.NoError(t, err)
			return l
		}
		release := func(l pathlock.Lock) { require.NoError(t, tree.Release(t.Context(), l.Token)) }
		old := lock("/old")
		lock("/stays")
		events, err := tree.Watch(t.Context())
		require.NoError(t, err)
		release(old)
		for range pathlock.LogLength {
			release(lock("/brief"))
		}
		lock("/last")
		assert.Equal(t, []string{"reset", "added/last", "added/stays"}, told(t, events, 3))
	})
}

// A watcher that does not read lets its word run out, and writers then log nothing. When
// another process watches, the log goes on; the first watcher has to see the gap.
func TestAWatcherThatWasAwayForLongerThanItsWordIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t)
		lock := func(path string) pathlock.Lock {
			l, err := tree.Lock(t.Context(), exclusive(path, time.Hour))
			require.NoError(t, err)
			return l
		}
		var away atomic.Bool
		events, err := tree.Watch(t.Context())
		require.NoError(t, err)
		lock("/first")
		got := []string{}
		for event, err := range events {
			require.NoError(t, err)
			got = append(got, fmt.Sprint(event.Kind, event.Lock.Path))
			if !away.Swap(true) {
				time.Sleep(61 * time.Second)
				unseen := lock("/unseen")
				_, err := tree.Watch(t.Context())
				require.NoError(t, err)
				lock("/third")
				require.NoError(t, tree.Release(t.Context(), unseen.Token))
			}
			if len(got) == 4 {
				break
			}
		}
		assert.Equal(t, []string{"added/first", "reset", "added/first", "added/third"}, got)
	})
}
