package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mongolock/mongolock/internal/errtext"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// perform calls the store, and takes in the answer. No call runs on a caller's context: its outcome would be unknown
// whenever a caller leaves.
func (e *Engine) perform(call *Call) {
	switch call.Kind {
	case Claim:
		call.Grant, call.Err = e.store.Acquire(call.outside.ctx, call.Claim)
		e.granted(call)
	case Transfer:
		e.transfer(call)
		return
	case RenewAll:
		e.renew(call)
		return
	case ReleaseOne:
		e.release(call)
		return
	case Undo:
		ctx := e.within(context.Background(), call)
		call.Settled, call.Err = e.store.Undo(ctx, call.Ref, call.From)
	case Leave:
		ctx := e.within(context.Background(), call)
		var s store.Status
		s, call.Err = e.store.Leave(ctx, call.Ref.Key, call.Place)
		call.Seen = []store.Status{s}
	case Look:
		ctx := e.within(context.Background(), call)
		call.Seen, call.Err = e.store.Look(ctx, call.Keys)
	case Notify:
		ctx := e.within(context.Background(), call)
		call.Err = e.feed.Notify(ctx, call.All...)
	}
	e.answered(call)
}

// within makes the context of a call, with the values of another one.
func (e *Engine) within(values context.Context, call *Call) context.Context {
	call.outside.ctx, call.outside.cancel = e.background.Within(values, call.Until.Sub(call.Sent))
	return call.outside.ctx
}

func (e *Engine) answered(call *Call) {
	call.outside.cancel()
	e.step(Event{Kind: Answered, Call: call})
}

// granted tells the observer that a hold begins.
func (e *Engine) granted(call *Call) {
	if h := call.hold; call.Err == nil && e.config.Observer != nil {
		h.outside.values, h.outside.end = e.Observe(h.outside.values, OpHold, h.Ref.Key, h.Terms)
	}
}

// transfer hands a lease over to a caller of this process, or resumes one.
func (e *Engine) transfer(call *Call) {
	from, end, released := call.from, func(Outcome) {}, func(Outcome) {}
	if from != nil {
		_, released = e.Observe(from.outside.values, OpRelease, from.Ref.Key, from.Terms)
		var values context.Context
		values, end = e.Observe(call.by.outside.ctx, OpTransfer, call.hold.Ref.Key, call.hold.Terms)
		if call.outside.cancel != nil {
			call.outside.cancel()
		}
		e.within(values, call)
	}
	call.Grant, call.Err = e.store.Transfer(call.outside.ctx, call.Ref, call.Claim)
	e.granted(call)
	call.outside.cancel()
	ready := e.decide(Event{Kind: Answered, Call: call})
	if call.goesOn { // with a release, which begins below
		from.outside.released = released
	}
	e.act(ready, func() {
		end(Outcome{Err: call.result, Token: call.Grant.Token, Count: 1})
		if from != nil && !call.goesOn {
			e.attempted(from, released)
		}
	})
}

// release makes an attempt to give a hold back.
func (e *Engine) release(call *Call) {
	h := call.hold
	values, end := h.outside.values, h.outside.released
	if h.outside.released = nil; end == nil {
		values, end = e.Observe(values, OpRelease, h.Ref.Key, h.Terms)
	}
	ctx := e.within(values, call)
	call.Released, call.Err = e.store.Release(ctx, call.Release)
	call.outside.cancel()
	e.act(e.decide(Event{Kind: Answered, Call: call}), func() { e.attempted(h, end) })
}

// attempted tells the observer of the end of an attempt to give a hold back.
func (e *Engine) attempted(h *Hold, end func(Outcome)) {
	e.mu.Lock()
	err := h.late
	e.mu.Unlock()
	end(Outcome{Err: err, Token: h.Token, Count: 1})
}

// renew sends a renewal.
func (e *Engine) renew(call *Call) {
	name, t := "", (*Terms)(nil)
	if len(call.Batch) == 1 {
		name, t = call.Batch[0].Ref.Key, call.Batch[0].Terms
	}
	end := e.observeAside(call.outside.ctx, OpRenew, name, t)
	request := make([]store.Renewal, len(call.Batch))
	for i, h := range call.Batch {
		request[i] = store.Renewal{Ref: h.Ref, TTL: h.Terms.TTL}
	}
	call.Answers = e.store.Renew(call.outside.ctx, request)
	call.outside.cancel()
	ready := e.decide(Event{Kind: Answered, Call: call})
	if e.config.Observer != nil {
		end(e.renewed(call))
	}
	e.act(ready)
}

// renewed is the outcome of a renewal.
func (e *Engine) renewed(call *Call) (out Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for i, h := range call.Batch {
		err := call.Answers[i].Err
		if h.err != nil {
			err = h.err
		}
		if err == nil {
			out.Count++
		} else {
			errs = append(errs, h.fault("renew", err))
		}
	}
	out.Err = errtext.Join(errs...)
	return out
}

// Observe tells the observer, if there is one, that an operation begins. A package that acquires for itself says so in
// ctx. Only the operation itself may wait for it: otherwise it is observeAside.
func (e *Engine) Observe(ctx context.Context, op Op, name string, t *Terms) (context.Context, func(Outcome)) {
	if e.config.Observer == nil {
		return ctx, func(Outcome) {}
	}
	pkg, mode := e.config.Package, store.Mode("")
	if t != nil {
		mode = t.Mode
	}
	if as, ok := ctx.Value(inside.ShownKey{}).(inside.Shown); ok {
		if as.Package != "" && op != OpRenew { // one renewal may be for leases of several packages
			pkg = as.Package
		}
		if as.Key != "" {
			name = as.Key
		}
	}
	return e.config.Observer.Begin(ctx, op, pkg, name, mode)
}

// observeAside is observe on a goroutine of its own, which the operation does not wait for.
func (e *Engine) observeAside(ctx context.Context, op Op, name string, t *Terms) (end func(Outcome)) {
	if e.config.Observer == nil {
		return func(Outcome) {}
	}
	over := make(chan Outcome, 1)
	e.background.Go(func() {
		_, end := e.Observe(ctx, op, name, t)
		end(<-over)
	})
	return func(out Outcome) { over <- out }
}

// Look reads one key, for op.
func (e *Engine) Look(ctx context.Context, op, key string) (store.Status, error) {
	if err := e.Ready(ctx, op, key); err != nil {
		return store.Status{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	all, err := e.store.Look(ctx, []string{key})
	if err != nil {
		return store.Status{}, &Fault{Op: op, Key: key, Err: err}
	}
	return all[0], nil
}

// Feed returns the store's feed for packages with topics of their own, or nil. Without listening it sends notices and
// hears none.
func (e *Engine) Feed() store.Feed {
	if e.feed != nil && e.config.NoFeed {
		return sendOnly{e.feed}
	}
	return e.feed
}

// Go runs f in the background, and Close waits for it.
func (e *Engine) Go(f func()) bool { return e.background.Go(f) }

// MaxCall is how long a call may take that the root makes.
const MaxCall = maxCall

// most is how many keys a call asks for, or releases, at a time.
const most = 64

// SideBySide calls f with the numbers from 0 to n-1, in their order, some at a time. It begins no more calls once one
// has returned false.
func SideBySide(n int, f func(i int) bool) {
	if n == 1 { // a goroutine for it would take longer than all else that this process does
		f(0)
		return
	}
	var next atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	for range min(most, n) {
		wg.Go(func() {
			for !over.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if !f(i) {
					over.Store(true)
				}
			}
		})
	}
	wg.Wait()
}
