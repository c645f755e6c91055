package mongolock

import (
	"context"
	"sync/atomic"
	"time"
)

// A bounded is the context of one store call: the caller's values under a bound
// of the engine's own. The caller's cancellation is not in it, or a cancel would
// leave a claim of unknown outcome behind. Its timer is made only when a store
// asks for Done, which one in memory never does.
type bounded struct {
	client   *Client // its base is over when it is torn down
	values   context.Context
	deadline moment                // zero: releaseBound after somebody first asked for it, or for Done
	timed    atomic.Pointer[timed] // once somebody asked for Done
}

// A timed context is one under the client's base, with a timer.
type timed struct {
	context.Context
	cancel context.CancelFunc
}

func (c *Client) bound(values context.Context, deadline moment) *bounded {
	return &bounded{client: c, values: values, deadline: deadline}
}

// begin makes a bounded context of one that was never used.
func (b *bounded) begin(values context.Context, c *Client, deadline moment) *bounded {
	b.client, b.values, b.deadline = c, values, deadline
	return b
}

// within is a bound of d from now.
func (c *Client) within(values context.Context, d time.Duration) *bounded {
	return c.bound(values, c.now().add(d))
}

func (b *bounded) armed() context.Context {
	if t := b.timed.Load(); t != nil {
		return t
	}
	deadline := b.deadline
	if deadline == 0 {
		deadline = b.client.now().add(releaseBound)
	}
	ctx, cancel := context.WithDeadline(b.client.base, b.client.timeOf(deadline))
	if !b.timed.CompareAndSwap(nil, &timed{ctx, cancel}) {
		cancel() // somebody else was quicker
	}
	return b.timed.Load()
}

// end frees the timer; the call is over.
func (b *bounded) end() {
	if t := b.timed.Load(); t != nil {
		t.cancel()
	}
}

func (b *bounded) Deadline() (time.Time, bool) {
	if b.deadline == 0 {
		return b.armed().Deadline()
	}
	return b.client.timeOf(b.deadline), true
}

func (b *bounded) Done() <-chan struct{} { return b.armed().Done() }

func (b *bounded) Err() error {
	if t := b.timed.Load(); t != nil {
		return t.Err()
	}
	if err := b.client.base.Err(); err != nil {
		return err
	}
	if !b.client.prompt && b.deadline != 0 && b.client.now() >= b.deadline { // one that answers at once is not asked in between
		return context.DeadlineExceeded
	}
	return nil
}

// Value asks the armed context first: contexts derived from this one find their
// parent to hang on that way, and never the caller's.
func (b *bounded) Value(key any) any {
	if v := b.armed().Value(key); v != nil {
		return v
	}
	return b.values.Value(key)
}
