package mongolock

import "context"

// A leaseContext is a parent's context that the lease's end cancels too.
type leaseContext struct {
	context.Context
	lease  *Lease
	cancel context.CancelCauseFunc
}

// contexts are those of one lease that end with it. Protected by the lease's mu.
type contexts struct {
	open    map[*leaseContext]struct{}
	endless *leaseContext // for all parents without an end
	revoked error         // why those made from now on begin cancelled
}

// Context is parent, also cancelled when the lease ends; context.Cause tells why.
// Its own Err looks at the clock first, so that a process that was stopped past
// its lease learns at once; contexts derived from it learn when the timer fires.
func (l *Lease) Context(parent context.Context) context.Context {
	_ = l.Err() // a lease that ran out ends now, not when its timer fires
	if parent.Done() == nil {
		return l.endlessContext(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	lc := &leaseContext{Context: ctx, lease: l, cancel: cancel}
	l.mu.Lock()
	l.adopt(lc)
	l.mu.Unlock()
	context.AfterFunc(ctx, func() { // a context per job must not pile up on a long lease
		l.mu.Lock()
		delete(l.contexts.open, lc)
		l.mu.Unlock()
	})
	return lc
}

// endlessContext is for parents that nothing ends. Their contexts end with the
// lease alone, so that one serves for all of them.
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

// adopt makes the lease's end cancel lc. With l.mu held.
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

// A valued context has the values of another.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any {
	if found := v.Context.Value(key); found != nil { // package context's own come first
		return found
	}
	return v.values.Value(key)
}

// Err looks at the lease's clock before it answers.
func (lc *leaseContext) Err() error {
	if err := lc.lease.Err(); err != nil {
		lc.cancel(err) // whoever ended it may be on the way here only now
	}
	return lc.Context.Err()
}

// cancelContexts ends the contexts made so far and, at birth, those yet to come.
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

// revoke takes the contexts that are to be cancelled. With l.mu held; they are
// cancelled without it, as that runs what others hung on them.
func (l *Lease) revoke(cause error) map[*leaseContext]struct{} {
	if l.contexts == nil {
		return nil // what is made from now on asks why the lease ended
	}
	if l.contexts.revoked == nil {
		l.contexts.revoked = cause
	}
	open := l.contexts.open
	l.contexts.open = nil
	return open
}
