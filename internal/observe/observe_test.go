package observe_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/observe"
)

type seenKey struct{}

// An observer records ends, and may be made to hang.
type observer struct {
	mu    sync.Mutex // protects ends
	ends  []string
	begin chan struct{} // Begin waits for it; nil: it does not
	end   chan struct{} // the end waits for it; nil: it does not
}

func (o *observer) Begin(ctx context.Context, op string) (context.Context, func(string)) {
	if o.begin != nil {
		<-o.begin
	}
	return context.WithValue(ctx, seenKey{}, op), func(out string) {
		if o.end != nil {
			<-o.end
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ends = append(o.ends, op+" "+out)
	}
}

func (o *observer) ended() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ends
}

func guard(o *observer) (g *observe.Guard[string, string], slow *int) {
	slow = new(int)
	return observe.New[string, string](o, func() { *slow++ }), slow
}

func TestAnObserverThatReturnsIsWaitedFor(t *testing.T) {
	o := &observer{}
	g, slow := guard(o)
	ctx, end := g.Begin(t.Context(), "op")
	assert.Equal(t, "op", ctx.Value(seenKey{}), "what the observer put into the context")
	end("ok")
	end("twice")
	assert.Equal(t, []string{"op ok"}, o.ended())
	assert.Zero(t, g.Skipped())
	assert.Zero(t, *slow)
}

func TestAnObserversBeginThatHangsIsWaitedForOnceAndToldOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &observer{begin: make(chan struct{})}
		g, slow := guard(o)
		start := time.Now()
		ctx, end := g.Begin(t.Context(), "first")
		assert.Equal(t, observe.Patience, time.Since(start))
		assert.Nil(t, ctx.Value(seenKey{}), "the context is the caller's")
		_, endSecond := g.Begin(t.Context(), "second")
		end("ok")
		endSecond("ok")
		assert.Equal(t, observe.Patience, time.Since(start), "what follows costs nothing")
		assert.EqualValues(t, 1, g.Skipped())
		assert.Equal(t, 1, *slow)
		assert.Empty(t, o.ended())
		close(o.begin)
		synctest.Wait()
		assert.Equal(t, []string{"first ok"}, o.ended(), "once Begin has returned")
		_, end = g.Begin(t.Context(), "third")
		end("ok")
		assert.Equal(t, []string{"first ok", "third ok"}, o.ended(), "the observer is back")
	})
}

func TestAnOperationThatOutlastsASlowBeginIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &observer{begin: make(chan struct{})}
		g, _ := guard(o)
		_, end := g.Begin(t.Context(), "op")
		close(o.begin)
		synctest.Wait()
		end("ok")
		assert.Equal(t, []string{"op ok"}, o.ended())
	})
}

func TestAnObserversEndThatHangsIsWaitedForOnceInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &observer{end: make(chan struct{})}
		g, slow := guard(o)
		var ends []func(string)
		for range 100 {
			_, end := g.Begin(t.Context(), "op")
			ends = append(ends, end)
		}
		start := time.Now()
		for _, end := range ends {
			end("ok")
		}
		assert.Equal(t, observe.Patience, time.Since(start))
		assert.Equal(t, 1, *slow)
		close(o.end)
		synctest.Wait()
		assert.Len(t, o.ended(), 100, "all are told in the end")
	})
}

// A careless observer returns nothing.
type careless struct{}

func (careless) Begin(context.Context, string) (context.Context, func(string)) { return nil, nil }

func TestNilsAreHarmless(t *testing.T) {
	var none *observe.Guard[string, string]
	assert.Nil(t, observe.New[string, string](nil, nil))
	assert.Zero(t, none.Skipped())
	for _, g := range []*observe.Guard[string, string]{none, observe.New[string, string](careless{}, nil)} {
		ctx, end := g.Begin(t.Context(), "op")
		assert.Equal(t, t.Context(), ctx)
		end("ok")
	}
}
