package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// An Op names a kind of call.
type Op string

// The operations of a Store and of a Feed.
const (
	OpAcquire  Op = "acquire"
	OpRenew    Op = "renew"
	OpRelease  Op = "release"
	OpTransfer Op = "transfer"
	OpUndo     Op = "undo"
	OpBreak    Op = "break"
	OpLook     Op = "look"
	OpList     Op = "list"
	OpNotify   Op = "notify"
	OpWatch    Op = "watch" // the opening of a watch
)

// Faulty is a store over a flaky network: it passes calls on to the real one,
// counts them, and injects the faults that it was told to. It is safe for
// concurrent use and needs no goroutine but for what arrives late, so it works
// in a testing/synctest bubble.
//
//	f := storetest.NewFaulty(memstore.New())
//	f.Next(1, storetest.ReplyLost, storetest.OpAcquire) // the next claim
//	lift := f.Until(storetest.Hang, storetest.OpRenew)  // every renewal, until lifted
//	up := f.Down()                                      // everything, the feed too
//
// It is a Feed whatever it wraps; over a store without one, that feed answers
// errors.ErrUnsupported.
type Faulty struct {
	store.Store // the real one; what is called on it directly meets no fault

	mu      sync.Mutex // protects what follows; never held across a call
	calls   map[Op]int
	next    []*rule // first come, first used; before those of until
	until   []*rule // the newest first
	late    map[*late]struct{}
	watches map[*context.CancelCauseFunc]struct{}
}

// rule injects a fault into calls of some operations, or of all if none is named.
type rule struct {
	fault Fault
	ops   []Op
	left  int // of a rule in Faulty.next
}

func (r *rule) covers(op Op) bool { return len(r.ops) == 0 || slices.Contains(r.ops, op) }

// NewFaulty returns s with no faults yet.
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

// Next injects a fault into the next n calls of the operations, of any if none
// is named. What was asked for first is used up first.
func (f *Faulty) Next(n int, fault Fault, ops ...Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > 0 {
		f.next = append(f.next, &rule{fault: fault, ops: ops, left: n})
	}
}

// Until injects a fault into every call of the operations, of any if none is
// named, until lift is called. Next comes before Until, and the newer Until
// before the older.
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

// Down makes every call fail with Unreachable and cuts the watches under way,
// until up is called.
func (f *Faulty) Down() (up func()) {
	up = f.Until(Unreachable)
	f.Cut()
	return up
}

// Cut ends the watches under way, each with an error.
func (f *Faulty) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for cancel := range f.watches {
		(*cancel)(errCut)
	}
}

// Calls counts the calls so far of the operations, of all if none is named. A
// call counts when it begins, whatever becomes of it.
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

// ResetCalls counts from zero again.
func (f *Faulty) ResetCalls() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.calls)
}

// do carries a call out under the fault that is due, if any.
func (f *Faulty) do(ctx context.Context, op Op, refs []store.Ref, apply func(context.Context) error) error {
	c := &Call{Op: op, Refs: refs, apply: apply, faulty: f}
	if fault := f.begin(op); fault != nil {
		return fault(ctx, c)
	}
	return c.Apply(ctx)
}

// begin counts a call and picks its fault.
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

func (f *Faulty) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	var g store.Grant
	if err := f.do(ctx, OpAcquire, []store.Ref{c.Ref}, func(ctx context.Context) (err error) {
		g, err = f.Store.Acquire(ctx, c)
		return err
	}); err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

// Renew fails a batch as a whole; the fault is every entry's.
func (f *Faulty) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	refs := make([]store.Ref, len(batch))
	for i, r := range batch {
		refs[i] = r.Ref
	}
	mine := slices.Clone(batch) // a late call must not read what the caller reuses
	var answers []store.Renewed
	if err := f.do(ctx, OpRenew, refs, func(ctx context.Context) error {
		answers = f.Store.Renew(ctx, mine)
		return nil
	}); err != nil {
		failed := make([]store.Renewed, len(batch))
		for i := range failed {
			failed[i].Err = err
		}
		return failed
	}
	return answers
}

func (f *Faulty) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	var wanted bool // of its own, as in the others: a late call writes it when the results are gone
	if err := f.do(ctx, OpRelease, []store.Ref{r}, func(ctx context.Context) (err error) {
		wanted, err = f.Store.Release(ctx, r, keep)
		return err
	}); err != nil {
		return false, err
	}
	return wanted, nil
}

func (f *Faulty) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	var g store.Grant
	if err := f.do(ctx, OpTransfer, []store.Ref{to.Ref, from}, func(ctx context.Context) (err error) {
		g, err = f.Store.Transfer(ctx, from, to)
		return err
	}); err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

// Undo is not settled while a claim of that ID is on its way by Late.
func (f *Faulty) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	var settled bool
	refs := []store.Ref{claim}
	if from != nil {
		refs = append(refs, *from)
	}
	if err := f.do(ctx, OpUndo, refs, func(ctx context.Context) (err error) {
		settled, err = f.undo(ctx, claim, from)
		return err
	}); err != nil {
		return false, err
	}
	return settled, nil
}

func (f *Faulty) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	return f.do(ctx, OpBreak, []store.Ref{r}, func(ctx context.Context) error {
		return f.Store.Break(ctx, r, reason, now)
	})
}

// Look answers no statuses with a fault; with the real store's error, what that
// one answered.
func (f *Faulty) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	mine := slices.Clone(keys)
	var all []store.Status
	var verdict error
	if err := f.do(ctx, OpLook, nil, func(ctx context.Context) error {
		all, verdict = f.Store.Look(ctx, mine)
		return nil
	}); err != nil {
		return nil, err
	}
	return all, verdict
}

// List asks the real store for everything before it yields anything.
func (f *Faulty) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		var all []store.Status
		err := f.do(ctx, OpList, nil, func(ctx context.Context) error {
			for status, err := range f.Store.List(ctx, prefix) {
				if err != nil {
					return err
				}
				all = append(all, status)
			}
			return nil
		})
		if err != nil {
			yield(store.Status{}, err)
			return
		}
		for _, status := range all {
			if !yield(status, nil) {
				return
			}
		}
	}
}

func (f *Faulty) Notify(ctx context.Context, n store.Notice) error {
	return f.do(ctx, OpNotify, nil, func(ctx context.Context) error {
		feed := store.FeedOf(f.Store)
		if feed == nil {
			return errNoFeed
		}
		return feed.Notify(ctx, n)
	})
}

func (f *Faulty) Watch(ctx context.Context) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer f.watching(&cancel)()
		err := f.do(ctx, OpWatch, nil, func(context.Context) error { return nil })
		feed := store.FeedOf(f.Store)
		if err == nil && feed == nil {
			err = errNoFeed
		}
		if err != nil {
			yield(store.Notice{}, err)
			return
		}
		for n, err := range feed.Watch(ctx) {
			if context.Cause(ctx) == errCut {
				break
			}
			if !yield(n, err) {
				return
			}
		}
		if context.Cause(ctx) == errCut {
			yield(store.Notice{}, errCut)
		}
	}
}

// watching registers a watch for Cut until the returned function is called.
func (f *Faulty) watching(cancel *context.CancelCauseFunc) (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[cancel] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watches, cancel)
	}
}

var (
	errCut    = fmt.Errorf("%w: watch cut", ErrFault)
	errNoFeed = fmt.Errorf("storetest: no feed: %w", errors.ErrUnsupported)
)
