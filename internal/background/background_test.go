package background

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func newGroup() *Group {
	return New()
}

func TestWaitWaitsForEveryTaskThatBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		var ended atomic.Int32
		assert.True(t, g.Go(func() { time.Sleep(time.Second); ended.Add(1) }))
		assert.True(t, g.Begin())
		time.AfterFunc(2*time.Second, func() { ended.Add(1); g.Done() })
		go g.Do(func() { time.Sleep(3 * time.Second); ended.Add(1) })
		synctest.Wait()
		start := time.Now()
		g.Wait()
		assert.EqualValues(t, 3, ended.Load())
		assert.Equal(t, 3*time.Second, time.Since(start))
		assert.Error(t, g.Base().Err())
	})
}

func TestAfterWaitNoTaskBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		g.Go(func() { // while others are waited for too
			time.Sleep(time.Second)
			assert.False(t, g.Go(func() { t.Error("ran") }))
		})
		g.Wait()
		assert.False(t, g.Do(func() { t.Error("ran") }))
		assert.False(t, g.Begin())
		synctest.Wait()
	})
}

func TestATaskThatPanicsIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		assert.Panics(t, func() { g.Do(func() { panic("a bug") }) })
		g.Wait()
	})
}

func TestCutEndsPausesAndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		assert.True(t, g.Pause(time.Second))
		ctx, cancel := g.Within(context.Background(), time.Hour)
		defer cancel()
		time.AfterFunc(time.Second, g.Cut)
		start := time.Now()
		assert.False(t, g.Pause(time.Hour))
		assert.Equal(t, time.Second, time.Since(start))
		synctest.Wait() // the end of the group reaches a call on a goroutine of its own
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
		g.Wait()
	})
}

func TestACallHasTheCallersValuesAndItsOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		defer g.Wait()
		type mark struct{}
		caller, leave := context.WithCancel(context.WithValue(t.Context(), mark{}, 1))
		ctx, cancel := g.Within(caller, time.Second)
		defer cancel()
		leave()
		assert.NoError(t, ctx.Err())
		assert.Equal(t, 1, ctx.Value(mark{}))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	})
}
