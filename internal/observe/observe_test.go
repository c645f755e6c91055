package observe_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// A said counts the lines of a log.
type said struct{ lines []string }

func (s *said) Write(line []byte) (int, error) {
	s.lines = append(s.lines, string(line))
	return len(line), nil
}

func guard(o observe.Observer[string, string]) (*observe.Guard[string, string], *said) {
	s := &said{}
	return observe.New(o, slog.New(slog.NewTextHandler(s, nil))), s
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
	assert.Empty(t, slow.lines)
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
		assert.Len(t, slow.lines, 1)
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
		assert.Len(t, slow.lines, 1)
		close(o.end)
		synctest.Wait()
		assert.Len(t, o.ended(), 100, "all are told in the end")
	})
}

// A dying observer panics.
type dying struct{ begin, end bool }

func (d dying) Begin(ctx context.Context, _ string) (context.Context, func(string)) {
	if d.begin {
		panic("begin: boom")
	}
	return ctx, func(string) {
		if d.end {
			panic("end: boom")
		}
	}
}

func TestAnObserverThatPanicsIsLoggedOnceAndEndsNothing(t *testing.T) {
	for want, o := range map[string]dying{"begin: boom": {begin: true}, "end: boom": {end: true}} {
		g, said := guard(o)
		for range 3 {
			ctx, end := g.Begin(t.Context(), "op")
			assert.Equal(t, t.Context(), ctx)
			end("ok")
		}
		require.Len(t, said.lines, 1)
		assert.Contains(t, said.lines[0], want)
		assert.Contains(t, said.lines[0], "observe_test.go", "the stack")
		assert.EqualValues(t, 3, g.Skipped())
	}
}

// A careless observer returns nothing.
type careless struct{}

func (careless) Begin(context.Context, string) (context.Context, func(string)) { return nil, nil }

func TestNilsAreHarmless(t *testing.T) {
	var none *observe.Guard[string, string]
	assert.Nil(t, observe.New[string, string](nil, nil))
	assert.Zero(t, none.Skipped())
	for _, g := range []*observe.Guard[string, string]{none, observe.New[string, string](careless{}, slog.Default())} {
		ctx, end := g.Begin(t.Context(), "op")
		assert.Equal(t, t.Context(), ctx)
		end("ok")
	}
}
