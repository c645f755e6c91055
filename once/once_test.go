package once_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/once"
)

var errBroken = errors.New("no such column")

func failing(context.Context, once.Run) error { return errBroken }

// maxPast is how many runs a record keeps.
const maxPast = 20

func TestOneOfSeveralProcessesRunsAndTheOthersWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		began := time.Now()
		var working sync.WaitGroup
		for i := range 20 {
			working.Go(func() {
				assert.NoError(t, w.do(t.Context(), fmt.Sprint("pod-", i), docset.None, takes(time.Minute)))
				assert.GreaterOrEqual(t, time.Since(began), time.Minute, "before it is done")
				assert.Less(t, time.Since(began), time.Minute+3*time.Second, "long after it was done")
			})
		}
		working.Wait()
		require.Len(t, w.runs, 1)
		assert.Equal(t, []string{"1 " + w.runs[0] + " succeeded"}, w.record())
	})
}

func TestWorkThatIsDoneCostsOneFindForEver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		require.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(time.Second)))
		assert.Equal(t, []string{"find", "hello", "findAndModify", "findAndModify", "findAndModify", "findAndModify"}, w.Take(), "the first run of all: look, the server's clock, lock, begin, end, release")
		time.Sleep(1000 * time.Hour) // virtual: done is done for ever
		require.NoError(t, w.do(t.Context(), "pod-2", docset.None, failing))
		assert.Equal(t, []string{"find"}, w.Take())
		assert.Equal(t, []string{"pod-1"}, w.runs)
	})
}

func TestARecordNamesTheRunnerItsStartAndItsDuration(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		began := time.Now().Add(docset.Epoch)
		text := once.Content([]byte("create index"))
		require.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(90*time.Second), text, once.With(mongolock.Note("version 7"))))
		r, err := once.Look(t.Context(), w.calm(), name)
		require.NoError(t, err)
		require.Len(t, r.Past, 1)
		e := r.Past[0]
		assert.WithinDuration(t, began, e.Began, time.Second)
		assert.InDelta(t, 90*time.Second, e.Took(), float64(time.Second))
		assert.Equal(t, "version 7", e.Note)
		assert.Regexp(t, "^sha256:[0-9a-f]{64}$", e.Sum)
		assert.Equal(t, w.tokens[0], e.Token)
	})
}

func TestAFailureIsSeenByThoseThatWaitedAndRepeatedByTheNextCall(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		slow := func(ctx context.Context, run once.Run) error {
			_ = takes(5*time.Second)(ctx, run)
			return errBroken
		}
		var own, seen int
		var mu sync.Mutex
		var working sync.WaitGroup
		for i := range 5 {
			working.Go(func() {
				err := w.do(t.Context(), fmt.Sprint("pod-", i), docset.None, slow)
				mu.Lock()
				defer mu.Unlock()
				var failed *once.FailedError
				switch {
				case errors.As(err, &failed):
					seen++
					assert.ErrorIs(t, err, once.ErrFailed)
					assert.Equal(t, "no such column", failed.Run.Error)
					assert.Regexp(t, `^once: the run that this call waited for failed: "add-index", run 1, by pod-\d, after 5(\.\d+)?s: no such column$`, err.Error())
				case errors.Is(err, errBroken):
					own++
				default:
					t.Errorf("unexpected: %v", err)
				}
			})
		}
		working.Wait()
		assert.Equal(t, 1, own)
		assert.Equal(t, 4, seen)
		require.NoError(t, w.do(t.Context(), "again", docset.None, func(_ context.Context, run once.Run) error {
			assert.Equal(t, 2, run.Number())
			return nil
		}))
		require.Len(t, w.runs, 2)
		assert.Equal(t, []string{"1 " + w.runs[0] + " failed: no such column", "2 again succeeded"}, w.record())
		w.ranApart()
	})
}

func TestARunThatIsStoppedWithItsCallerGoesOnElsewhere(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		var working sync.WaitGroup
		working.Go(func() {
			assert.ErrorIs(t, w.do(ctx, "pod-1", docset.None, takes(time.Hour)), context.Canceled)
		})
		time.Sleep(time.Second) // virtual: it runs by now
		working.Go(func() { assert.NoError(t, w.do(t.Context(), "pod-2", docset.None, takes(time.Second))) })
		time.Sleep(time.Minute) // virtual: the other waits
		cancel()
		working.Wait()
		assert.Equal(t, []string{"1 pod-1 stopped: context canceled", "2 pod-2 succeeded"}, w.record())
		w.ranApart()
	})
}

func TestAPanicIsAFailureAndFreesTheLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		waited := make(chan error, 1)
		assert.PanicsWithValue(t, "oh", func() {
			_ = w.do(t.Context(), "pod-1", docset.None, func(context.Context, once.Run) error {
				go func() { waited <- w.do(t.Context(), "pod-3", docset.None, takes(0)) }()
				time.Sleep(time.Minute) // virtual: the other waits
				panic("oh")
			})
		})
		assert.ErrorIs(t, <-waited, once.ErrFailed, "it is not tried in turn by all that wait")
		began := time.Now()
		require.NoError(t, w.do(t.Context(), "pod-2", docset.None, takes(0)))
		assert.Less(t, time.Since(began), time.Second)
		assert.Equal(t, []string{"1 pod-1 panicked: the function panicked, or ended its goroutine", "2 pod-2 succeeded"}, w.record())
	})
}

func TestContentOtherThanTheDoneOneIsAnError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		first, second := once.Content([]byte("create index")), once.Content([]byte("drop index"))
		require.ErrorIs(t, w.do(t.Context(), "pod-1", docset.None, failing, first), errBroken)
		require.NoError(t, w.do(t.Context(), "pod-2", docset.None, takes(0), second), "mended")
		for range 2 {
			err := w.do(t.Context(), "pod-3", docset.None, takes(0), first)
			var changed *once.ChangedError
			require.ErrorAs(t, err, &changed)
			assert.ErrorIs(t, err, once.ErrChanged)
			assert.Equal(t, "pod-2", changed.Run.Owner)
			assert.Regexp(t, `^once: done with other content: "add-index" was done by run 2, by pod-2, with the checksum sha256:\w+, not sha256:\w+$`, err.Error())
		}
		assert.NoError(t, w.do(t.Context(), "pod-4", docset.None, takes(0), second))
		assert.NoError(t, w.do(t.Context(), "pod-5", docset.None, takes(0)), "nothing to compare")
		assert.Len(t, w.runs, 2)
	})
}

func TestAContentIsItsPartsAndWhereTheyBegin(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		require.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(0), once.Content([]byte("ab"), []byte("c"))))
		assert.ErrorIs(t, w.do(t.Context(), "pod-1", docset.None, takes(0), once.Content([]byte("a"), []byte("bc"))), once.ErrChanged)
		assert.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(0), once.Content([]byte("ab"), []byte("c"))))
	})
}

func TestAResetMakesTheNextCallRunAndIsRecorded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		require.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(0)))
		require.NoError(t, once.Reset(t.Context(), w.calm(), name, "the index was dropped by hand", quiet("ada")...))
		require.NoError(t, w.do(t.Context(), "pod-2", docset.None, takes(time.Hour)))
		require.NoError(t, w.do(t.Context(), "pod-3", docset.None, takes(0)))
		assert.Equal(t, []string{"1 pod-1 succeeded", "1 ada undone: the index was dropped by hand", "2 pod-2 succeeded"}, w.record())
	})
}

func TestAResetDisturbsNoRunAndMakesNoRecord(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		err := once.Reset(t.Context(), w.calm(), name, "x", quiet("ada")...)
		assert.ErrorContains(t, err, "once: never run")
		assert.Empty(t, w.record())
		var working sync.WaitGroup
		working.Go(func() { assert.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(time.Minute))) })
		time.Sleep(time.Second) // virtual: it runs by now
		assert.ErrorIs(t, once.Reset(t.Context(), w.calm(), name, "x", quiet("ada")...), mongolock.ErrHeld)
		working.Wait()
		assert.Equal(t, []string{"1 pod-1 succeeded"}, w.record())
	})
}

func TestAWaitEndsWithMaxWaitAndWithItsContext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var working sync.WaitGroup
		working.Go(func() { assert.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(time.Minute))) })
		time.Sleep(time.Second) // virtual: it runs by now
		began := time.Now()
		err := w.do(t.Context(), "pod-2", docset.None, takes(0), once.With(mongolock.MaxWait(5*time.Second)))
		var held *mongolock.HeldError
		require.ErrorAs(t, err, &held)
		assert.Equal(t, "pod-1", held.Holders[0].Owner)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		assert.ErrorIs(t, w.do(ctx, "pod-3", docset.None, takes(0)), context.DeadlineExceeded)
		assert.InDelta(t, 10*time.Second, time.Since(began), float64(time.Second))
		working.Wait()
		assert.Equal(t, []string{"pod-1"}, w.runs)
	})
}

func TestARecordKeepsTheLastRuns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		for range maxPast + 5 {
			require.ErrorIs(t, w.do(t.Context(), "pod-1", docset.None, failing), errBroken)
		}
		require.NoError(t, w.do(t.Context(), "pod-1", docset.None, takes(0)))
		r, err := once.Look(t.Context(), w.calm(), name)
		require.NoError(t, err)
		assert.Len(t, r.Past, maxPast)
		assert.Equal(t, maxPast+6, r.Runs)
		assert.Equal(t, r.Runs, r.Past[maxPast-1].Number)
	})
}

func TestAListHasEveryRecordAndNoStrangers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		coll := w.calm()
		_, err := coll.InsertOne(t.Context(), map[string]any{"_id": "c"})
		require.NoError(t, err)
		for _, name := range []string{"b", "a"} {
			require.NoError(t, once.Do(t.Context(), coll, name, takes(0), quiet("pod-1")...))
		}
		var names []string
		for r, err := range once.List(t.Context(), coll) {
			require.NoError(t, err)
			assert.True(t, r.Done)
			names = append(names, r.Name)
		}
		assert.Equal(t, []string{"a", "b"}, names)
	})
}

// A migration calls Do for its own name, through a helper. That it runs under other names, too, makes no difference.
func TestARunThatCallsDoForItsOwnNameIsToldAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		coll, began := w.collection(docset.None), time.Now()
		err := once.Do(ctx, coll, name, func(ctx context.Context, _ once.Run) error {
			return once.Do(ctx, coll, "another", func(ctx context.Context, _ once.Run) error {
				return once.Do(ctx, coll, name, takes(0), quiet("pod-1")...)
			}, quiet("pod-1")...)
		}, quiet("pod-1")...)
		require.ErrorIs(t, err, mongolock.ErrHeld)
		require.ErrorContains(t, err, `this is called within its own run, and would wait for itself`)
		assert.Less(t, time.Since(began), time.Second)
	})
}
