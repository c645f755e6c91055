// Package leasectx makes contexts that end with their parent or with something else, such as a
// lease, whichever is first.
//
// The contexts of parents that end together share one cancellable context. So a thousand
// contexts of one parent cost no more to cancel than one, and leave nothing behind.
package leasectx

import (
	"context"
	"iter"
	"sync"
)

// An Owner is what the contexts of a Tether end with.
type Owner interface {
	// Err returns nil until the owner has ended, and then why. It may call End. It is called
	// without a lock.
	Err() error
}

// A Tether makes the contexts that end with one owner. It is safe for concurrent use.
type Tether struct {
	owner Owner

	mu    sync.Mutex                 // protects what follows; a leaf: nothing is called while it is held
	open  map[<-chan struct{}]*bound // by the Done channel of their parents; nil for parents that never end
	cause error                      // why contexts that are made from now on are cancelled from the start
}

// New makes the Tether of an owner.
func New(owner Owner) *Tether { return &Tether{owner: owner, open: make(map[<-chan struct{}]*bound)} }

// Context returns a context that ends with parent or with the owner, and has parent's values.
// context.Cause tells why it ended. Its own Err asks the owner first. Contexts derived from it
// learn of the owner's end by End.
func (t *Tether) Context(parent context.Context) context.Context {
	ended := parent.Done()
	t.mu.Lock()
	b := t.open[ended]
	t.mu.Unlock()
	if b == nil {
		b = t.bind(parent, ended)
	}
	return &tethered{b, t.owner, parent}
}

// End cancels the contexts made so far. Later ones are cancelled from the start. The first cause,
// which is not nil, stays. All are cancelled when End returns. End runs callbacks of the application, so it must
// not be called with a lock held. A nil Tether has no contexts.
func (t *Tether) End(cause error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	if t.cause == nil {
		t.cause = cause
	}
	open := t.open
	t.open = nil
	t.mu.Unlock()
	for _, b := range open {
		b.cancel(cause)
	}
}

// bound is the context that all parents with the same Done channel share.
type bound struct {
	context.Context
	cancel context.CancelCauseFunc
}

// bind makes the context for parents with the channel ended. It holds no lock while it looks at
// the parent, which may be a context of the same Tether.
func (t *Tether) bind(parent context.Context, ended <-chan struct{}) *bound {
	if ended == nil {
		parent = context.Background() // do not keep a parent alive that never ends
	}
	ctx, cancel := context.WithCancelCause(parent)
	b := &bound{ctx, cancel}
	t.mu.Lock()
	other, cause := t.open[ended], t.cause
	if other == nil && cause == nil {
		t.open[ended] = b
	}
	t.mu.Unlock()
	switch {
	case other != nil: // another call made it meanwhile
		cancel(nil)
		return other
	case cause != nil:
		cancel(cause)
	case ended != nil:
		context.AfterFunc(ctx, func() { // contexts of finished jobs must not pile up on a long lease
			t.mu.Lock()
			delete(t.open, ended)
			t.mu.Unlock()
		})
	}
	return b
}

// A tethered context ends with the bound one, and has the values of its own parent.
type tethered struct {
	*bound
	owner  Owner
	values context.Context
}

// Err asks the owner before it answers.
func (c *tethered) Err() error {
	if err := c.owner.Err(); err != nil {
		c.cancel(err) // the goroutine that ended the owner may not have reached this context yet
	}
	return c.Context.Err()
}

// Value returns the parent's value, not that of the parent for which the bound context was made.
// But if package context looks for what cancels it and why, that is the bound context. To ask both
// would double the work with each lease under another.
func (c *tethered) Value(key any) any {
	switch key {
	case tetheredKey{}:
		return c
	case cancels:
		return c.Context
	}
	return c.values.Value(key)
}

// cancels is the key with which package context asks a context for what cancels it: Cause asks an
// ended context for nothing else.
var cancels = func() any {
	var asked asks
	_ = context.Cause(&asked)
	return asked.key
}()

type asks struct {
	context.Context
	key any
}

func (a *asks) Value(key any) any { a.key = key; return nil }
func (a *asks) Err() error        { return context.Canceled }

type tetheredKey struct{}

// Owners yields what ctx was made by, the innermost owner first: it and its parents end with them.
func Owners(ctx context.Context) iter.Seq[Owner] {
	return func(yield func(Owner) bool) {
		for {
			c, ok := ctx.Value(tetheredKey{}).(*tethered)
			if !ok || !yield(c.owner) {
				return
			}
			ctx = c.values
		}
	}
}

// With returns ctx with the values of another context. Those of ctx come first, so that package
// context finds what cancels it.
func With(ctx, values context.Context) context.Context { return valued{ctx, values} }

type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any {
	if found := v.Context.Value(key); found != nil {
		return found
	}
	return v.values.Value(key)
}
