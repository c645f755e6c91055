package mongolock

import "context"

// A leaseContext is a context that ends with its parent or with its lease. Context is
// shared by all parents that end together; values is the parent, for its values.
type leaseContext struct {
	context.Context
	values context.Context
	lease  *Lease
	cancel context.CancelCauseFunc
}

// contexts are the contexts that end with one lease. Protected by the lease's mu.
type contexts struct {
	// open has one context for each Done channel of a parent: parents with the same channel
	// end together. The nil channel is that of parents that never end.
	open    map[<-chan struct{}]*leaseContext
	revoked error // why contexts that are made from now on begin cancelled
}

// Context returns a context that ends with parent or with the lease, whichever is
// first. context.Cause tells why it ended. Its own Err looks at the clock first, so that a
// process which was stopped past its lease learns at once. Contexts derived from it
// learn when the timer fires.
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

// shared is the context for parents with the channel ended; nil if there is none. With
// l.mu held.
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
		parent = context.Background() // keep nothing alive that never ends
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
	case other != nil: // made meanwhile
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

// Value answers with the parent's values, not with those of the parent for which the
// shared context was made.
func (lc *leaseContext) Value(key any) any {
	if key == cancelKey {
		return lc.Context.Value(key)
	}
	return lc.values.Value(key)
}

// endOf ends with a context and has none of its values.
type endOf struct{ context.Context }

func (e endOf) Value(key any) any {
	if key == cancelKey {
		return e.Context.Value(key)
	}
	return nil
}

// cancelKey is the key by which package context finds the parent that a context ends
// with. Without it, each would need a goroutine.
var cancelKey = func() (key any) {
	_ = context.Cause(keyProbe{context.Background(), &key})
	return key
}()

type keyProbe struct {
	context.Context
	asked *any
}

func (p keyProbe) Err() error        { return context.Canceled } // a cause is asked for
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
	for _, lc := range open {
		lc.cancel(cause)
	}
}

// revoke returns the contexts that are to be cancelled. It is called with l.mu held,
// and they are cancelled without it, as that runs other people's callbacks.
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
