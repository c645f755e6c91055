package mongolock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// errLate: the reply took longer than the lease that it granted.
var errLate = errors.New("granted too late to be of use")

// An unwanted is why a grant is being given back.
type unwanted struct{ err error }

func (u *unwanted) Error() string { return u.err.Error() + ", being given back" }

func (u *unwanted) Unwrap() []error { return []error{u.err, ErrOutcomeUnknown} }

// try is TryAcquire: one claim, and another one if the first was refused but the key
// was free by the time that the refusal was explained.
func (c *Client) try(ctx context.Context, key string, t *terms) (*Lease, error) {
	w := &waiter{ctx: ctx, key: key, terms: t}
	lease, err := c.tryOnce(w)
	var held *store.HeldError
	if errors.As(err, &held) && open(&held.Status, w.terms) {
		lease, err = c.tryOnce(w)
	}
	switch {
	case err == nil:
		return lease, nil
	case errors.As(err, new(*abandoned)):
		return nil, &fault{op: "acquire", key: w.key, err: err} // the claim goes on, and its outcome will be known
	}
	return nil, failed("acquire", w.key, err)
}

func (c *Client) tryOnce(w *waiter) (*Lease, error) {
	if !c.enter() {
		return nil, &abandoned{ErrClosed}
	}
	return c.send(w, 0, false, c.clock.Now())
}

// An exchange is where the reply to a claim meets its caller, unless the caller has
// left. The first of the two to set over decides which it was.
type exchange struct {
	over  atomic.Bool
	reply chan struct{}
	lease *Lease
	err   error
}

// send makes one claim, under an ID of its own, and returns once it is answered or the
// caller's wait is over. In the latter case the claim goes on, and if it is granted
// the lease is given back. Trust in the grant begins at sent. The caller has entered
// the claim as background work.
//
// A store that answers at once is called on the caller's goroutine: on another one a
// free pair in memory takes more than twice as long.
func (c *Client) send(w *waiter, want time.Duration, seenHeld bool, sent monotonic.Moment) (*Lease, error) {
	ctx, cancel := c.bound(w.ctx, sent.Add(min(w.terms.ttl, maxCall)))
	if c.prompt {
		defer c.background.Done()
		defer cancel()
		return c.claim(ctx, w, want, seenHeld, sent)
	}
	return c.claimDetached(w, cancel, func() (*Lease, error) { return c.claim(ctx, w, want, seenHeld, sent) })
}

// abandonedFor is how much longer a claim may take than its caller waits for it. It is
// then cut off and cleaned up. Cutting it off at once would leave a claim to clean up
// each time that a caller leaves, where most are answered in a moment.
const abandonedFor = time.Second

// claimDetached runs a claim on a goroutine of its own. It lets the caller go when the
// caller's context or patience is over, or when the client shuts down. cut ends the
// claim's context.
func (c *Client) claimDetached(w *waiter, cut context.CancelFunc, claim func() (*Lease, error)) (*Lease, error) {
	x := &exchange{reply: make(chan struct{})}
	go func() {
		defer c.background.Done()
		growStack()
		x.lease, x.err = claim()
		cut()
		switch {
		case x.over.CompareAndSwap(false, true):
			close(x.reply)
		case x.lease != nil:
			x.lease.giveBackUnseen(ErrReleased)
		default:
			c.takeBackLate(w, x.err)
		}
	}()
	giveUp, stop := c.timerAt(w.patience)
	defer stop()
	var err error
	select {
	case <-x.reply:
		return x.lease, x.err
	case <-w.ctx.Done():
		err = contextError(w.ctx)
	case <-giveUp:
		err = errPatience
	case <-c.draining:
		err = ErrClosed
	}
	if x.over.CompareAndSwap(false, true) {
		time.AfterFunc(abandonedFor, cut)
		return nil, &abandoned{fmt.Errorf("the store has not answered: %w", err)}
	}
	<-x.reply
	return x.lease, x.err
}

// growStack gives a new goroutine the stack that a database driver needs, all at once.
// The MongoDB driver, with the store above it, needs over 16 KB. Without growStack the
// stack grows in several steps and is copied at each: a free pair on a server then
// takes 1.13 times the same two commands by hand, instead of 1.09.
//
//go:noinline
func growStack() {
	var room [20 << 10]byte
	runtime.KeepAlive(&room)
}

// An abandoned is why a caller left without an answer: its context or patience was
// over, or the client was closed.
type abandoned struct{ err error }

func (a *abandoned) Error() string { return a.err.Error() }

func (a *abandoned) Unwrap() error { return a.err }

// claim asks the store for the key.
func (c *Client) claim(ctx context.Context, w *waiter, want time.Duration, seenHeld bool, sent monotonic.Moment) (*Lease, error) {
	claim := w.terms.claim(w.key, c.newID(), c.owner)
	claim.Want, claim.Held = want, seenHeld
	if knob.ReuseID {
		claim.ID = c.unsettledID(claim.Ref)
	}
	l := c.newLease(w, claim.ID)
	grant, err := c.store.Acquire(ctx, claim)
	return c.settle(l, w, nil, sent, grant, err)
}

// newID names an acquisition.
func (c *Client) newID() string {
	if knob.OneID {
		return "ONE-ID-FOR-ALL-" + c.owner
	}
	return rand.Text()
}

// unsettledID is the ID of an earlier claim of the key that is still being cleaned up.
// Only the test that shows why an ID must not be used twice asks for it.
func (c *Client) unsettledID(claim store.Ref) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref := range c.cleaner.claims {
		if ref.Key == claim.Key {
			return ref.ID
		}
	}
	return claim.ID
}

// settle takes in the answer to a claim. It begins the lease that was granted, or makes
// sure that nothing of the claim is left behind. from is the acquisition that a
// hand-over named; nil for other claims.
func (c *Client) settle(l *Lease, w *waiter, from *store.Ref, sent monotonic.Moment, g store.Grant, err error) (*Lease, error) {
	now := c.clock.Now()
	if knob.DeadlineFromReply {
		sent = now
	}
	if err != nil {
		if !store.IsCertain(err) {
			c.undo(l.ref(), from, now.Add(drifted(l.terms.ttl)))
		}
		return nil, err
	}
	l.grant(sent, now, g)
	if err := l.start(w); err != nil {
		return nil, err
	}
	return l, nil
}

// drifted is how long d, measured by the store's clock, may last by ours.
func drifted(d time.Duration) time.Duration { return d + d/1000 + time.Millisecond }
