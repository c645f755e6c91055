package mongolock

import "context"

// An Op is an operation that an Observer sees.
type Op string

// The operations. A renewal covers all leases that one call renews.
const (
	OpAcquire  Op = "acquire"  // from the call of Acquire or TryAcquire to its return
	OpWait     Op = "wait"     // within it, from the first refusal, or from queueing up
	OpHold     Op = "hold"     // from the grant to the lease's end
	OpRenew    Op = "renew"    // one call of the store; the key is empty for a batch of several
	OpRelease  Op = "release"  // one attempt to give a lease back
	OpTransfer Op = "transfer" // one attempt to hand a lease over inside this process, or to resume one
)

// An Outcome is how an operation ended.
type Outcome struct {
	Err   error // nil, a verdict (ErrHeld), or a fault; for OpHold why the lease ended
	Token int64 // of the lease, where there is one
	Count int   // leases that the operation was about; those renewed for OpRenew
}

// An Observer sees operations begin and end. Begin returns the context that the
// operation goes on with, so that a trace can hang its span there, and a function
// that is called once when it ends; neither may be nil. Both must be quick and
// may be called from several goroutines at once.
type Observer interface {
	Begin(ctx context.Context, op Op, key string) (context.Context, func(Outcome))
}

// observe begins an operation; without an observer it costs nothing.
func (c *Client) observe(ctx context.Context, op Op, key string) (context.Context, func(Outcome)) {
	if c.observer == nil {
		return ctx, func(Outcome) {}
	}
	return c.observer.Begin(ctx, op, key)
}
