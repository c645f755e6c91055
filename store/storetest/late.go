package storetest

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/store"
)

// landingTime bounds a late call on the real store, for which nobody waits.
const landingTime = 10 * time.Second

// late is a call whose caller gave up, or is about to, and which is still to be
// applied.
type late struct {
	call    *Call
	ctx     context.Context // the caller's, without its end
	bars    bool            // an Undo of the claim keeps the call from being applied
	started bool            // on its way to the real store, or kept from it; protected by Faulty.mu
	timer   *time.Timer     // set when the caller gave up; protected by Faulty.mu
}

// Late returns when the call's context ends and applies the call so long after
// that. Until it was applied, Undo of its claim is not settled and leaves it
// coming, like a store that can only look whether the claim is there.
func Late(after time.Duration) Fault { return landLater(after, false) }

// LateUnlessUndone is Late on a store whose Undo keeps the late claim from being
// applied, as one does that numbers the commands of a session.
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

// Late counts the calls that are still to arrive.
func (f *Faulty) Late() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.late)
}

// Land applies now what is still to arrive.
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
	_ = l.call.Apply(ctx) // nobody is there to hear it

	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.late, l)
}

// start takes the call from whoever else would apply it. The caller holds
// Faulty.mu.
func (l *late) start() {
	l.started = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// undo passes an Undo on, unless its claim is still to arrive. Out of a transfer
// that is to arrive from is removed all the same, after which that transfer finds
// nothing to take.
func (f *Faulty) undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	coming := f.isComing(claim)
	if coming && from == nil {
		return false, nil
	}
	settled, err = f.Store.Undo(ctx, claim, from)
	return settled && !coming, err
}

// isComing looks for the late claim, and bars it if that is possible.
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
