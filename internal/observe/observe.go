// Package observe stands between the library and the observer of a program, which may be
// slow, may block for ever, may panic, and may call back into what it observes. It also counts
// the calls of a store.
//
// The types of an operation and its outcome are those of the root package, which imports
// this one.
package observe

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Patience is how long a [Guard] waits for one call of the observer. The shortest lease,
// of 100 ms, survives a renewal that is late by that much.
const Patience = 50 * time.Millisecond

// An Observer sees operations begin and end.
type Observer[Op, Out any] interface {
	Begin(ctx context.Context, op Op) (context.Context, func(Out))
}

// A Guard calls an observer on goroutines of their own, and waits for each call, but not
// for longer than Patience. While a call is overdue, operations that begin are not
// observed, and the ends of others are told without waiting. So an observer that hangs
// costs its caller one Patience, and no goroutines but those of what was under way. A panic of
// the observer ends that call alone.
//
// A nil Guard observes nothing.
type Guard[Op, Out any] struct {
	observer Observer[Op, Out]
	logger   *slog.Logger
	saidSlow atomic.Bool
	saidDead atomic.Bool
	overdue  atomic.Int64 // calls that are
	skipped  atomic.Uint64
}

// New makes a Guard; nil if observer is nil. It logs the first call that takes longer than
// Patience, and the first that panics.
func New[Op, Out any](observer Observer[Op, Out], logger *slog.Logger) *Guard[Op, Out] {
	if observer == nil {
		return nil
	}
	return &Guard[Op, Out]{observer: observer, logger: logger}
}

// Skipped is how many operations the observer was not told of.
func (g *Guard[Op, Out]) Skipped() uint64 {
	if g == nil {
		return 0
	}
	return g.skipped.Load()
}

// Begin tells the observer that an operation begins. It returns the context with which the
// operation goes on and the function to call when it ends; neither is nil. The observer
// learns of the end, once, even if its Begin returned after that.
func (g *Guard[Op, Out]) Begin(ctx context.Context, op Op) (context.Context, func(Out)) {
	switch {
	case g == nil:
		return ctx, func(Out) {}
	case g.overdue.Load() > 0:
		g.skipped.Add(1)
		return ctx, func(Out) {}
	}
	o := &operation[Out]{}
	var within context.Context
	inTime := g.Call(func() {
		c, end := g.observer.Begin(ctx, op)
		within = c
		o.begun(end)
	})
	if inTime && within != nil {
		ctx = within
	}
	return ctx, func(out Out) {
		if end := o.ended(out); end != nil {
			g.Call(func() { end(out) })
		}
	}
}

// Call runs f, which calls the observer, and reports whether it returned in time.
func (g *Guard[Op, Out]) Call(f func()) (inTime bool) {
	if g.overdue.Load() > 0 {
		go g.survive(f)
		return false
	}
	var decided atomic.Bool // whether it returned in time, by whichever side comes first
	done := make(chan struct{})
	go func() {
		g.survive(f)
		if decided.Swap(true) {
			g.overdue.Add(-1)
		}
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(Patience):
	}
	g.overdue.Add(1) // before the other side can take it off
	if decided.Swap(true) {
		g.overdue.Add(-1)
		<-done
		return true
	}
	if !g.saidSlow.Swap(true) {
		g.logger.Warn("mongolock: the observer is slow: the client goes on without it", "waited", Patience)
	}
	return false
}

// survive runs f and recovers from its panic: metrics are not worth a process.
func (g *Guard[Op, Out]) survive(f func()) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		g.skipped.Add(1)
		if !g.saidDead.Swap(true) {
			g.logger.Error("mongolock: the observer panicked: it misses operations; only the first panic is logged", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// An operation is what became of one Begin. Begin and the operation may end in either
// order.
type operation[Out any] struct {
	mu  sync.Mutex
	end func(Out) // nil: Begin has not returned
	out *Out      // nil: the operation is under way
}

// begun takes in what Begin returned, and tells the end of an operation that is over.
func (o *operation[Out]) begun(end func(Out)) {
	if end == nil {
		end = func(Out) {}
	}
	o.mu.Lock()
	o.end = end
	out := o.out
	o.mu.Unlock()
	if out != nil {
		end(*out)
	}
}

// ended returns the function to tell the end with. It is nil if Begin will tell it, or if
// it was told.
func (o *operation[Out]) ended(out Out) func(Out) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out != nil {
		return nil
	}
	o.out = &out
	return o.end
}
