package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/store"
)

// ErrFault is matched by every error that a Fault of this package makes.
var ErrFault = errors.New("storetest: injected fault")

// A Fault decides what happens to a call: whether and when it is applied, and what the caller
// is told. If the Fault returns an error, the caller gets only that error. If it returns nil,
// the caller gets the real store's answer, or zero values if the call was not applied. Tests
// may write their own, and build on those of this package.
type Fault func(ctx context.Context, c *Call) error

// A Call is one call on a Faulty, as its Fault sees it.
type Call struct {
	Op   Op
	Refs []store.Ref // the acquisitions it names; in a Transfer and an Undo the claim comes first

	apply   func(context.Context) error
	applied atomic.Bool
	faulty  *Faulty
}

// Apply makes the call on the real store. It works once.
func (c *Call) Apply(ctx context.Context) error {
	if c.applied.Swap(true) {
		return errors.New("storetest: a Fault applied a call twice")
	}
	return c.apply(ctx)
}

// Refused fails the call with an error that matches store.ErrNotApplied, as if no server
// could be found.
func Refused(context.Context, *Call) error {
	return fmt.Errorf("%w: refused (%w)", ErrFault, store.ErrNotApplied)
}

// RequestLost fails the call with an unknown outcome, without applying it.
func RequestLost(context.Context, *Call) error {
	return fmt.Errorf("%w: request lost", ErrFault)
}

// ReplyLost applies the call, and fails it at once with an unknown outcome. For a reply
// that never comes use Slow with a long second delay.
func ReplyLost(ctx context.Context, c *Call) error {
	_ = c.Apply(ctx)
	return fmt.Errorf("%w: reply lost", ErrFault)
}

// Unreachable fails the call at once with an unknown outcome, without applying it. See
// Faulty.Down.
func Unreachable(context.Context, *Call) error {
	return fmt.Errorf("%w: store unreachable", ErrFault)
}

// Hang returns when the call's context ends, and never applies the call.
func Hang(ctx context.Context, _ *Call) error {
	<-ctx.Done()
	return gaveUp(ctx)
}

// Slow applies the call after one delay and answers after another. If the context ends
// during the first delay the call is not applied; if it ends during the second one the
// call was applied.
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
