package mongolock

import "context"

// An Op is an operation that an Observer sees.
type Op string

// The operations.
const (
	OpAcquire  Op = "acquire"  // a call of Acquire or TryAcquire
	OpWait     Op = "wait"     // the part of Acquire that waits
	OpHold     Op = "hold"     // from the grant to the lease's end
	OpRenew    Op = "renew"    // one call of the store; if it renews several leases the key is empty
	OpRelease  Op = "release"  // one attempt to give a lease back
	OpTransfer Op = "transfer" // one attempt to hand a lease over inside this process, or to resume a lease
)

// An Outcome is how an operation ended.
type Outcome struct {
	Err   error // nil, a verdict (ErrHeld), or a fault; for OpHold why the lease ended
	Token int64 // of the lease, where there is one
	Count int   // leases that the operation was about; for OpRenew those that were renewed
}

// An Observer sees operations begin and end. Begin returns the context with which the
// operation goes on, to which a trace can add its span, and a function that is called
// once when the operation ends; neither may be nil. Both functions must be quick, and
// may be called by several goroutines at once.
type Observer interface {
	Begin(ctx context.Context, op Op, key string) (context.Context, func(Outcome))
}

// observe tells the observer, if there is one, that an operation begins.
func (c *Client) observe(ctx context.Context, op Op, key string) (context.Context, func(Outcome)) {
	if c.observer == nil {
		return ctx, func(Outcome) {}
	}
	return c.observer.Begin(ctx, op, key)
}
