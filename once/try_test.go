package once_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/once"
)

func TestTryDoDoesNotWaitForAnotherProcess(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		try := func(rest once.Func) (bool, error) {
			return once.TryDo(t.Context(), w.calm(), name, w.work("second", rest), quiet("second")...)
		}
		first := make(chan error, 1)
		go func() { first <- w.do(t.Context(), "first", docset.None, takes(time.Minute)) }()
		time.Sleep(time.Second)
		began := time.Now()
		done, err := try(takes(0))
		require.NoError(t, err)
		assert.False(t, done)
		assert.Less(t, time.Since(began), 5*time.Second)
		require.NoError(t, <-first)
		done, err = try(failing)
		require.NoError(t, err)
		assert.True(t, done, "done elsewhere")
		assert.Equal(t, []string{"first"}, w.runs)
	})
}

func TestTryDoRunsTheFunctionAndReturnsItsError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		done, err := once.TryDo(t.Context(), w.calm(), name, failing, quiet("first")...)
		assert.False(t, done)
		assert.ErrorIs(t, err, errBroken)
		done, err = once.TryDo(t.Context(), w.calm(), name, takes(time.Second), quiet("first")...)
		require.NoError(t, err)
		assert.True(t, done)
		_, err = once.TryDo(t.Context(), nil, name, nil)
		assert.ErrorContains(t, err, "once: TryDo: the collection is nil")
		assert.ErrorContains(t, err, "once: TryDo: fn is nil")
	})
}

func TestResetOfANameThatWasNeverRunSaysSo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		assert.ErrorIs(t, once.Reset(t.Context(), w.calm(), "never", "a mistake"), once.ErrNotFound)
	})
}
