// Package background runs what an object does in the background, and waits for all of it when the
// object is closed.
package background

import (
	"context"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/leasectx"
)

// A Group is the background work of one object. Each task is counted from before it begins, so
// that Wait misses none. It is safe for concurrent use, under any lock.
type Group struct {
	base context.Context // the context of all tasks and their calls
	cut  context.CancelFunc

	mu      sync.Mutex // protects closed, and running while closed is not set
	closed  bool
	running sync.WaitGroup
}

// New makes a Group.
func New() *Group {
	g := &Group{}
	g.base, g.cut = context.WithCancel(context.Background())
	return g
}

// Go runs f on a goroutine of its own. After Wait it does nothing and returns false.
func (g *Group) Go(f func()) bool {
	if !g.Begin() {
		return false
	}
	go func() {
		defer g.Done()
		f()
	}()
	return true
}

// Run is Go. After Wait it calls f itself: the caller is part of what ends the object.
func (g *Group) Run(f func()) {
	if !g.Go(f) {
		f()
	}
}

// Do is Go on the caller's goroutine.
func (g *Group) Do(f func()) bool {
	if !g.Begin() {
		return false
	}
	defer g.Done()
	f()
	return true
}

// Begin counts a task that ends with Done, on another goroutine maybe. After Wait it does nothing
// and returns false. Go and Do are safer.
func (g *Group) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.running.Add(1)
	}
	return !g.closed
}

// Done ends a task that Begin counted.
func (g *Group) Done() { g.running.Done() }

// Wait waits for all tasks, and cuts off what is left of their calls. From here on no task
// begins.
func (g *Group) Wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
	g.cut()
}

// Cut ends the context of all tasks, so that they come to an end.
func (g *Group) Cut() { g.cut() }

// Base is the context that Cut ends.
func (g *Group) Base() context.Context { return g.base }

// Pause sleeps. It returns false if the tasks are cut off first.
func (g *Group) Pause(d time.Duration) bool { return backoff.Sleep(g.base, d) }

// Within returns a context for one call. It has the values of values, and ends after d or when the tasks are cut off. It
// ignores the end of values: the call would be left with an unknown outcome.
func (g *Group) Within(values context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(g.base, d)
	return leasectx.With(ctx, values), cancel
}
