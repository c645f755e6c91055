package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/store"
)

// ErrFault matches every error that a fault of this package makes up.
var ErrFault = errors.New("storetest: injected fault")

// A Fault decides what becomes of a call: whether and when it is applied, and
// what the caller hears. With an error the caller gets nothing else; with nil,
// what the real store answered, or zero values where it was not asked. Tests may
// write their own, and build them out of these.
type Fault func(ctx context.Context, c *Call) error

// A Call is one call on a Faulty, as its Fault sees it.
type Call struct {
	Op   Op
	Refs []store.Ref // what it names: of a Transfer and of an Undo the claim comes first, of a Renew all

	apply   func(context.Context) error
	applied atomic.Bool
	faulty  *Faulty
}

// Apply carries the call out on the real store. It can do so once.
func (c *Call) Apply(ctx context.Context) error {
	if c.applied.Swap(true) {
		return errors.New("storetest: a Fault applied a call twice")
	}
	return c.apply(ctx)
}

// Refused fails the call and says that it was not applied: what a client does
// that finds no server to send to.
func Refused(context.Context, *Call) error {
	return fmt.Errorf("%w: refused (%w)", ErrFault, store.ErrNotApplied)
}

// RequestLost fails the call before it is applied, without saying so.
func RequestLost(context.Context, *Call) error {
	return fmt.Errorf("%w: request lost", ErrFault)
}

// ReplyLost applies the call and fails it at once, whatever the store answered.
// A reply that never comes is Slow(0, a long time).
func ReplyLost(ctx context.Context, c *Call) error {
	_ = c.Apply(ctx)
	return fmt.Errorf("%w: reply lost", ErrFault)
}

// Unreachable fails the call at once and does not say whether it was applied; it
// was not. See Faulty.Down.
func Unreachable(context.Context, *Call) error {
	return fmt.Errorf("%w: store unreachable", ErrFault)
}

// Hang never applies the call and returns only when its context ends.
func Hang(ctx context.Context, _ *Call) error {
	<-ctx.Done()
	return gaveUp(ctx)
}

// Slow applies the call after one delay and answers after another. Where the
// context ends in the first, the call is not applied; where it ends in the
// second, it was.
func Slow(before, after time.Duration) Fault {
	return func(ctx context.Context, c *Call) error {
		if !pause(ctx, before) {
			return gaveUp(ctx)
		}
		err := c.Apply(ctx)
		if !pause(ctx, after) {
			return gaveUp(ctx)
		}
		return err
	}
}

func gaveUp(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrFault, ctx.Err()) }

// pause reports whether d passed before the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
