package mongolock

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock/internal/engine"
	"github.com/mongolock/mongolock/store"
)

// An Op is a kind of operation.
type Op string

// The operations.
const (
	OpAcquire  Op = "acquire"  // one call that asks for a key, the wait included; AcquireAll makes one or two of each key
	OpWait     Op = "wait"     // the part of it that waits
	OpHold     Op = "hold"     // from the grant to the lease's end
	OpRenew    Op = "renew"    // one call that renews a lease, or several at once: then there is no key
	OpRelease  Op = "release"  // one attempt to give a lease back
	OpTransfer Op = "transfer" // one attempt to hand a lease over inside this process, or to resume one
	OpRun      Op = "run"      // the function of a job (package schedule), of a term (leader), or that runs once (once)
	OpMiss     Op = "miss"     // due times of a job were dropped, and will not run: Outcome.Count says how many; it takes no time
)

// An Operation describes an operation to an Observer when it begins. It never contains the ID
// of an acquisition.
type Operation struct {
	Op      Op
	Package string     // whose operation it is: "mongolock", "doclock", "once", "schedule", "leader" or "pathlock"
	Key     string     // a key, a document, a job, a path; empty where several leases are meant
	Mode    store.Mode // of the lease, where there is one
}

// An Outcome is how an operation ended. OutcomeOf names it.
type Outcome struct {
	Err   error // nil, a verdict (ErrHeld), or a fault; for OpHold why the lease ended
	Token int64 // of the lease, where there is one
	Count int   // leases that the operation was about; for OpRenew those that were renewed, for OpMiss the due times
}

// The names of outcomes, which OutcomeOf returns.
const (
	OutcomeGranted   = "granted"   // what was asked for was done
	OutcomeReleased  = "released"  // the lease was released or detached by its holder
	OutcomeHeld      = "held"      // others hold the key
	OutcomeTimeout   = "timeout"   // a deadline passed, or MaxWait was exceeded
	OutcomeCancelled = "cancelled" // the caller's context was cancelled, or the client closed
	OutcomeLost      = "lost"      // the lease ended, and its holder did not end it
	OutcomeUnknown   = "unknown"   // the database may have done it; it is being cleaned up
	OutcomeFailed    = "failed"    // any other error
)

// OutcomeOf names the outcome that an error stands for: one of the few names above, fit for a
// label. It takes every error of this library; nil is OutcomeGranted.
func OutcomeOf(err error) string {
	var left *engine.CallerGone
	cause := err
	if errors.As(err, &left) {
		cause = left.Err // the rest of the error describes the key, not why the call ended
	}
	certain := errors.Is(cause, store.ErrNotApplied) // a deadline in such an error is not the caller's
	switch {
	case err == nil:
		return OutcomeGranted
	case left != nil && errors.Is(cause, context.DeadlineExceeded), errors.Is(cause, engine.ErrPatience):
		return OutcomeTimeout
	case left != nil:
		return OutcomeCancelled
	case errors.Is(err, ErrReleased), errors.Is(err, ErrDetached):
		return OutcomeReleased
	case errors.Is(err, ErrLost):
		return OutcomeLost
	case errors.Is(err, ErrOutcomeUnknown):
		return OutcomeUnknown
	case errors.Is(err, context.DeadlineExceeded) && !certain:
		return OutcomeTimeout
	case errors.Is(err, context.Canceled) && !certain, errors.Is(err, ErrClosed):
		return OutcomeCancelled
	case errors.Is(err, ErrHeld):
		return OutcomeHeld
	}
	return OutcomeFailed
}

// An Observer sees operations begin and end: those of a Client, and of the packages schedule,
// leader, doclock, once and pathlock. Begin returns the context with which the operation goes on, to
// which a trace can add its span, and a function that is called once when the operation ends.
//
// Both functions are called by the goroutine that does the work, several at once. The work waits
// for them, so they must return quickly. A panic in them is not recovered. They may read numbers
// (Stats) and the state of a lease, because no lock is held meanwhile. They must not call what waits
// for the database or for other work of the client: Acquire, Renew, Release, Close and the like.
//
// A call that does not return holds up the operation that it is about, and the Close of the client.
// It holds up no renewal, and no lease's end: OpRenew, and an OpHold that its holder does not end,
// have goroutines of their own.
type Observer interface {
	// Begin is called when an operation begins. Neither result may be nil. The context of an OpRenew
	// is not used.
	Begin(ctx context.Context, op Operation) (context.Context, func(Outcome))
}

// A StatsObserver is an Observer that also reads the numbers of what it observes. Each new
// client (scheduler, tree) calls Watch once, with a function that reads its numbers and may be
// called at any time. It calls stop when it is closed.
type StatsObserver interface {
	Observer

	// Watch is called with the function that reads the numbers.
	Watch(stats func() Stats) (stop func())
}

// Stats are the numbers of a client at one moment.
type Stats struct {
	Package    string          // as in Operation
	Held       int             // leases that are held
	Unreleased int             // leases that have ended and are not given back yet
	Waiters    int             // calls of Acquire that have not been answered
	Candidates int             // those of Waiters that wait to be elected by package leader, perhaps for ever
	InLine     int             // keys in whose line this client stands, candidates aside
	CleanUps   int             // claims of unknown outcome that are being cleaned up
	Feed       store.FeedState // whether the waiters hear of freed keys

	// Ahead is the most waiters that come before this client in the line of one key, candidates
	// aside, as it last saw that line: up to half a minute ago.
	Ahead int
	// OldestWait is how long the longest waiter has waited, candidates aside.
	OldestWait time.Duration
	// OldestRenewal is the time since the last renewal, or the grant, of the lease that has
	// gone longest without one. Leases with NoRenewal do not count.
	OldestRenewal time.Duration
}

// Plus adds up the numbers of two clients: for a StatsObserver that shows those of a package together. Of Ahead and of each age it keeps the greater, and
// Package and Feed come from s.
func (s Stats) Plus(t Stats) Stats {
	s.Held += t.Held
	s.Unreleased += t.Unreleased
	s.Waiters += t.Waiters
	s.Candidates += t.Candidates
	s.InLine += t.InLine
	s.CleanUps += t.CleanUps
	s.Ahead = max(s.Ahead, t.Ahead)
	s.OldestWait = max(s.OldestWait, t.OldestWait)
	s.OldestRenewal = max(s.OldestRenewal, t.OldestRenewal)
	return s
}

// Stats returns the numbers of the client, all of one moment. It sends nothing. It takes about
// a tenth of a microsecond for each lease and for each key that is waited for.
func (c *Client) Stats() Stats { return Stats(c.engine.Stats()) }

// A face shows the engine's operations to an Observer.
type face struct{ Observer }

func (f face) Begin(ctx context.Context, op engine.Op, pkg, key string, mode store.Mode) (context.Context, func(engine.Outcome)) {
	ctx, end := f.Observer.Begin(ctx, Operation{Op: Op(op), Package: pkg, Key: key, Mode: mode})
	return ctx, func(out engine.Outcome) { end(Outcome(out)) }
}

// observer returns the client's, or nil.
func (c *Client) observer() Observer {
	f, _ := c.config.Observer.(face)
	return f.Observer
}

// unobserved is the observer where there is none.
type unobserved struct{}

func (unobserved) Begin(ctx context.Context, _ Operation) (context.Context, func(Outcome)) {
	return ctx, func(Outcome) {}
}
