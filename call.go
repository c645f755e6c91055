package mongolock

import (
	"context"
	"sync"
	"time"
)

// A bounded is the context of one store call: the caller's values under a bound
// of the engine's own. The caller's cancellation is not in it, or a cancel would
// leave a claim of unknown outcome behind. Its timer is made only when a store
// asks for Done, which one in memory never does.
type bounded struct {
	values   context.Context
	base     context.Context // the client's, over when it is torn down
	deadline time.Time
	prompt   bool // the store answers at once: the deadline cannot come between

	mu     sync.Mutex // protects inner and cancel
	inner  context.Context
	cancel context.CancelFunc
}

func (c *Client) bound(values context.Context, deadline time.Time) *bounded {
	return &bounded{values: values, base: c.base, deadline: deadline, prompt: c.prompt}
}

// within is a bound of d from now.
func (c *Client) within(values context.Context, d time.Duration) *bounded {
	return c.bound(values, time.Now().Add(d))
}

func (b *bounded) armed() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inner == nil {
		b.inner, b.cancel = context.WithDeadline(b.base, b.deadline)
	}
	return b.inner
}

// end frees the timer; the call is over.
func (b *bounded) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
}

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

func (b *bounded) Done() <-chan struct{} { return b.armed().Done() }

func (b *bounded) Err() error {
	b.mu.Lock()
	inner := b.inner
	b.mu.Unlock()
	switch {
	case inner != nil:
		return inner.Err()
	case b.base.Err() != nil:
		return b.base.Err()
	case !b.prompt && !time.Now().Before(b.deadline):
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
