package mongolock

import "context"

// A leaseContext is a context that ends with its parent or with its lease. Its Context is
// shared by all parents that end together; values is the parent whose values it has.
type leaseContext struct {
	context.Context
	values context.Context
	lease  *Lease
	cancel context.CancelCauseFunc
}

// contexts are the contexts that end with one lease. They are protected by the lease's mu.
type contexts struct {
	// open has one context for each Done channel of a parent: parents with the same channel end
	// together. Parents that never end have the nil channel.
	open    map[<-chan struct{}]*leaseContext
	revoked error // why contexts that are made from now on are cancelled from the start
}

// Context returns a context that ends with parent or with the lease, whichever is first.
// context.Cause tells why it ended. Its own Err reads the clock first, so a process that was
// paused past its lease learns of it at once. Contexts derived from it learn when the timer
// fires.
func (l *Lease) Context(parent context.Context) context.Context {
	_ = l.Err() // ends a lease that ran out, even if its timer has not fired yet
	ended := parent.Done()
	l.mu.Lock()
	shared := l.shared(ended)
	l.mu.Unlock()
	if shared == nil {
		shared = l.share(parent, ended)
	}
	lc := *shared
	lc.values = parent
	return &lc
}

// shared returns the context for parents with the channel ended, or nil. Call it with l.mu
// held.
func (l *Lease) shared(ended <-chan struct{}) *leaseContext {
	if l.contexts == nil {
		l.contexts = &contexts{open: make(map[<-chan struct{}]*leaseContext), revoked: l.err}
	}
	return l.contexts.open[ended]
}

// share makes the context that parents with the channel ended share. The parent may be a
// context of the same lease, which locks it.
func (l *Lease) share(parent context.Context, ended <-chan struct{}) *leaseContext {
	if ended == nil {
		parent = context.Background() // do not keep a parent alive that never ends
	}
	ctx, cancel := context.WithCancelCause(endOf{parent})
	lc := &leaseContext{Context: ctx, lease: l, cancel: cancel}
	l.mu.Lock()
	other, revoked := l.shared(ended), l.contexts.revoked
	if other == nil && revoked == nil {
		l.contexts.open[ended] = lc
	}
	l.mu.Unlock()
	switch {
	case other != nil: // another call made it meanwhile
		cancel(nil)
		return other
	case revoked != nil:
		cancel(revoked)
	case ended != nil:
		context.AfterFunc(ctx, func() { // contexts of finished jobs must not pile up on a long lease
			l.mu.Lock()
			delete(l.contexts.open, ended)
			l.mu.Unlock()
		})
	}
	return lc
}

// Value returns the parent's values, not those of the parent for which the shared context was
// made.
func (lc *leaseContext) Value(key any) any {
	if key == cancelKey {
		return lc.Context.Value(key)
	}
	return lc.values.Value(key)
}

// An endOf ends with a context and has none of its values.
type endOf struct{ context.Context }

func (e endOf) Value(key any) any {
	if key == cancelKey {
		return e.Context.Value(key)
	}
	return nil
}

// cancelKey is the key by which package context finds the parent that a context ends with.
// Without it, each context would need a goroutine.
var cancelKey = func() (key any) {
	_ = context.Cause(keyProbe{context.Background(), &key})
	return key
}()

type keyProbe struct {
	context.Context
	asked *any
}

func (p keyProbe) Err() error        { return context.Canceled } // for context.Cause
func (p keyProbe) Value(key any) any { *p.asked = key; return nil }

// A valued context also has the values of another one.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any {
	if found := v.Context.Value(key); found != nil { // first, as package context finds a parent to cancel this way
		return found
	}
	return v.values.Value(key)
}

// Err reads the clock for the lease before it answers.
func (lc *leaseContext) Err() error {
	if err := lc.lease.Err(); err != nil {
		lc.cancel(err) // the goroutine that ended the lease may not have reached this context yet
	}
	return lc.Context.Err()
}

// cancelContexts cancels the contexts made so far. Later ones are cancelled from the start.
func (l *Lease) cancelContexts(cause error) {
	l.mu.Lock()
	if l.contexts == nil {
		l.contexts = &contexts{revoked: l.err}
	}
	open := l.revoke(cause)
	l.mu.Unlock()
	for _, lc := range open {
		lc.cancel(cause)
	}
}

// revoke returns the contexts to cancel. Call it with l.mu held, and cancel them without it:
// that runs callbacks of the application.
func (l *Lease) revoke(cause error) map[<-chan struct{}]*leaseContext {
	if l.contexts == nil {
		return nil // contexts that are made from now on ask why the lease ended
	}
	if l.contexts.revoked == nil {
		l.contexts.revoked = cause
	}
	open := l.contexts.open
	l.contexts.open = nil
	return open
}
