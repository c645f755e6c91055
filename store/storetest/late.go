package storetest

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/store"
)

// landingTime bounds a late call on the real store. No caller waits for it.
const landingTime = 10 * time.Second

// late is a call that is still to be applied, though its caller gave up or will.
type late struct {
	call    *Call
	ctx     context.Context // the caller's values
	bars    bool            // an Undo of the claim prevents the call
	started bool            // the call was made, or prevented; protected by Faulty.mu
	timer   *time.Timer     // set when the caller gave up; protected by Faulty.mu
}

// Late fails the call when its context ends, and applies it this long after that. Until
// then an Undo of its claim is not settled and does not prevent the call, as in a store
// that can only look whether the claim is there.
func Late(after time.Duration) Fault { return landLater(after, false) }

// LateUnlessUndone is Late, but an Undo of the claim prevents the call, as in a store
// that numbers the commands of a session.
func LateUnlessUndone(after time.Duration) Fault { return landLater(after, true) }

func landLater(after time.Duration, bars bool) Fault {
	return func(ctx context.Context, c *Call) error {
		l := &late{call: c, ctx: context.WithoutCancel(ctx), bars: bars}
		f := c.faulty
		f.mu.Lock()
		f.late[l] = struct{}{}
		f.mu.Unlock()

		<-ctx.Done()
		f.mu.Lock()
		defer f.mu.Unlock()
		if !l.started {
			l.timer = time.AfterFunc(after, func() { f.land(l) })
		}
		return gaveUp(ctx)
	}
}

// Late returns the number of calls that are still to be applied.
func (f *Faulty) Late() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.late)
}

// Land applies at once the calls that are still to be applied.
func (f *Faulty) Land() {
	f.mu.Lock()
	var all []*late
	for l := range f.late {
		all = append(all, l)
	}
	f.mu.Unlock()
	for _, l := range all {
		f.land(l)
	}
}

func (f *Faulty) land(l *late) {
	f.mu.Lock()
	mine := !l.started
	l.start()
	f.mu.Unlock()
	if !mine {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, landingTime)
	defer cancel()
	_ = l.call.Apply(ctx) // no caller waits for the result

	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.late, l)
}

// start claims the call, so that it is applied only once. The caller holds Faulty.mu.
func (l *late) start() {
	l.started = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// undo passes an Undo to the real store, unless its claim is still to be applied. If
// that is a transfer, its source is removed nevertheless, so that the transfer will
// find nothing to take.
func (f *Faulty) undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	coming := f.isComing(claim)
	if coming && from == nil {
		return false, nil
	}
	settled, err = f.Store.Undo(ctx, claim, from)
	return settled && !coming, err
}

// isComing reports whether the claim is still to be applied, and prevents it if it can.
func (f *Faulty) isComing(claim store.Ref) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.late {
		if op := l.call.Op; op != OpAcquire && op != OpTransfer || l.call.Refs[0].ID != claim.ID {
			continue
		}
		if l.bars && !l.started {
			l.start()
			delete(f.late, l)
			return false
		}
		return true
	}
	return false
}
