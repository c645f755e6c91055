package storetest

import (
	"context"
	"slices"
	"sync"

	"github.com/mongolock/mongolock/store"
)

// An Op names a kind of call.
type Op string

// The operations of a Store and of a Feed.
const (
	OpAcquire  Op = "acquire"
	OpRenew    Op = "renew"
	OpRelease  Op = "release"
	OpLeave    Op = "leave"
	OpTransfer Op = "transfer"
	OpUndo     Op = "undo"
	OpBreak    Op = "break"

	OpLook   Op = "look"
	OpList   Op = "list"
	OpNotify Op = "notify"
	OpWatch  Op = "watch" // the opening of a watch
)

// Faulty is a store over a flaky network: it passes calls to the real store, counts
// them, and injects faults on command. It is safe for concurrent use. It starts
// goroutines only for calls that are applied late, so it works in a testing/synctest
// bubble.
//
//	f := storetest.NewFaulty(memstore.New())
//	f.Next(1, storetest.ReplyLost, storetest.OpAcquire) // the next claim
//	lift := f.Until(storetest.Hang, storetest.OpRenew)  // every renewal, until lifted
//	up := f.Down()                                      // everything, the feed too
//
// It is a Feed whatever it wraps. Over a store that is not, its calls answer errors.ErrUnsupported.
type Faulty struct {
	store.Store // the real store; calls on it directly meet no fault

	mu      sync.Mutex // protects all that follows; never held across a call
	calls   map[Op]int
	next    []*rule // in the order in which they are used, before those of until
	until   []*rule // newest first
	late    map[*late]struct{}
	watches map[*context.CancelCauseFunc]struct{}
}

// A rule injects a fault into calls of some operations, or of all if it names none.
type rule struct {
	fault Fault
	ops   []Op
	left  int // how many calls are left, in Faulty.next
}

func (r *rule) covers(op Op) bool { return len(r.ops) == 0 || slices.Contains(r.ops, op) }

// NewFaulty wraps s. It injects no faults yet.
func NewFaulty(s store.Store) *Faulty {
	return &Faulty{
		Store:   s,
		calls:   make(map[Op]int),
		late:    make(map[*late]struct{}),
		watches: make(map[*context.CancelCauseFunc]struct{}),
	}
}

// Unwrap returns the real store.
func (f *Faulty) Unwrap() store.Store { return f.Store }

// Next injects a fault into the next n calls of these operations, or of any operation
// if none is named. Earlier calls of Next are used up first.
func (f *Faulty) Next(n int, fault Fault, ops ...Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > 0 {
		f.next = append(f.next, &rule{fault: fault, ops: ops, left: n})
	}
}

// Until injects a fault into every call of these operations, or of any operation if
// none is named, until lift is called. Faults of Next come first, then those of the
// newest Until.
func (f *Faulty) Until(fault Fault, ops ...Op) (lift func()) {
	r := &rule{fault: fault, ops: ops}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = slices.Insert(f.until, 0, r)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.until = slices.DeleteFunc(f.until, func(other *rule) bool { return other == r })
	}
}

// Down ends the running watches and makes every call fail with Unreachable, until up is
// called.
func (f *Faulty) Down() (up func()) {
	up = f.Until(Unreachable)
	f.Cut()
	return up
}

// Cut ends the running watches, each with an error.
func (f *Faulty) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for cancel := range f.watches {
		(*cancel)(errCut)
	}
}

// Calls returns the number of calls of these operations so far, or of all if none is
// named. A call counts when it begins, whatever its outcome.
func (f *Faulty) Calls(ops ...Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := 0
	for op, n := range f.calls {
		if len(ops) == 0 || slices.Contains(ops, op) {
			sum += n
		}
	}
	return sum
}

// ResetCalls sets the counts to zero.
func (f *Faulty) ResetCalls() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.calls)
}

// do makes a call under the fault that is due, if any.
func (f *Faulty) do(ctx context.Context, op Op, refs []store.Ref, apply func(context.Context) error) error {
	c := &Call{Op: op, Refs: refs, apply: apply, faulty: f}
	if fault := f.begin(op); fault != nil {
		return fault(ctx, c)
	}
	return c.Apply(ctx)
}

// begin counts a call and returns its fault.
func (f *Faulty) begin(op Op) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	for i, r := range f.next {
		if !r.covers(op) {
			continue
		}
		if r.left--; r.left <= 0 {
			f.next = slices.Delete(f.next, i, i+1)
		}
		return r.fault
	}
	for _, r := range f.until {
		if r.covers(op) {
			return r.fault
		}
	}
	return nil
}
