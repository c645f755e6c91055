package lab

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A Hook makes a call with Do, or does not. If it returns nil, or the error that Do returned, the
// caller gets the answer that stands in the Call then; otherwise it gets that error alone.
type Hook func(ctx context.Context, c *Call) error

// A Call is one call as its Hook sees it.
type Call struct {
	Context context.Context // the caller's
	Op      Op
	Key     string          // of one that names one
	Keys    []string        // of a Look
	Ref     store.Ref       // the acquisition that it claims, ends or undoes
	Claim   store.Claim     // of an Acquire and of a Transfer
	Batch   []store.Renewal // of a Renew

	// The answer, once Do has returned. A Hook may change it.
	Grant    store.Grant
	Renewed  []store.Renewed
	Released store.ReleaseResult
	Settled  bool
	Status   store.Status   // of a Leave
	Statuses []store.Status // of a Look and of a List

	err   error
	apply func(context.Context, *Call)
}

// Do makes the call, although the caller's context may have ended, and returns the store's error.
func (c *Call) Do() error {
	c.apply(context.WithoutCancel(c.Context), c)
	return c.err
}

// Late makes the call after a while, whatever has become of its caller. Nobody gets the answer.
func (c *Call) Late(after time.Duration) {
	copied := *c
	time.AfterFunc(after, func() { _ = copied.Do() })
}

// Fail makes no call, and answers each with err. With nil the answer is the zero value.
func Fail(err error) Hook {
	return func(context.Context, *Call) error { return err }
}

// LoseReply makes each call, and fails it with err.
func LoseReply(err error) Hook {
	return func(_ context.Context, c *Call) error {
		_ = c.Do()
		return err
	}
}

// Hang keeps a call until its context ends, and never makes it.
func Hang(ctx context.Context, _ *Call) error {
	<-ctx.Done()
	return ctx.Err()
}

// Slow makes each call after one delay, and answers it after another, whatever becomes of its context.
func Slow(before, after time.Duration) Hook {
	return func(_ context.Context, c *Call) error {
		time.Sleep(before)
		defer time.Sleep(after)
		return c.Do()
	}
}
