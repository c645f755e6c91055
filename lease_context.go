package mongolock

import "context"

// A leaseContext is a context that ends with its parent or with its lease.
type leaseContext struct {
	context.Context
	lease  *Lease
	cancel context.CancelCauseFunc
}

// contexts are the contexts that end with one lease. Protected by the lease's mu.
type contexts struct {
	open    map[*leaseContext]struct{}
	endless *leaseContext // shared by all parents that never end
	revoked error         // why contexts that are made from now on begin cancelled
}

// Context returns a context that ends with parent or with the lease, whichever is
// first; context.Cause tells why. Its own Err looks at the clock first, so that a
// process which was stopped past its lease learns at once. Contexts derived from it
// learn when the timer fires.
func (l *Lease) Context(parent context.Context) context.Context {
	_ = l.Err() // ends a lease that ran out, even if its timer has not fired yet
	if parent.Done() == nil {
		return l.endlessContext(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	lc := &leaseContext{Context: ctx, lease: l, cancel: cancel}
	l.mu.Lock()
	l.adopt(lc)
	l.mu.Unlock()
	context.AfterFunc(ctx, func() { // contexts of finished jobs must not pile up on a long lease
		l.mu.Lock()
		delete(l.contexts.open, lc)
		l.mu.Unlock()
	})
	return lc
}

// endlessContext is Context for a parent that never ends. Such contexts end with the
// lease alone, so they share one.
func (l *Lease) endlessContext(parent context.Context) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contexts == nil || l.contexts.endless == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		endless := &leaseContext{Context: ctx, lease: l, cancel: cancel}
		l.adopt(endless)
		l.contexts.endless = endless
	}
	lc := *l.contexts.endless
	lc.Context = valued{lc.Context, parent}
	return &lc
}

// adopt makes the end of the lease cancel lc. With l.mu held.
func (l *Lease) adopt(lc *leaseContext) {
	if l.contexts == nil {
		l.contexts = &contexts{open: make(map[*leaseContext]struct{}), revoked: l.err}
	}
	if cause := l.contexts.revoked; cause != nil {
		lc.cancel(cause)
		return
	}
	l.contexts.open[lc] = struct{}{}
}

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

// Err looks at the lease's clock before it answers.
func (lc *leaseContext) Err() error {
	if err := lc.lease.Err(); err != nil {
		lc.cancel(err) // the goroutine that ended the lease may not have come to this context yet
	}
	return lc.Context.Err()
}

// cancelContexts cancels the contexts made so far; later ones begin cancelled.
func (l *Lease) cancelContexts(cause error) {
	l.mu.Lock()
	if l.contexts == nil {
		l.contexts = &contexts{revoked: l.err}
	}
	open := l.revoke(cause)
	l.mu.Unlock()
	for lc := range open {
		lc.cancel(cause)
	}
}

// revoke returns the contexts that are to be cancelled. It is called with l.mu held,
// and they are cancelled without it, as that runs other people's callbacks.
func (l *Lease) revoke(cause error) map[*leaseContext]struct{} {
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
