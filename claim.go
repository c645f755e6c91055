package mongolock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// errLate is a grant whose reply took longer than the lease it granted.
var errLate = errors.New("granted too late to be of use")

// unwanted is a grant that is being given back, with the reason.
type unwanted struct{ err error }

func (u *unwanted) Error() string { return u.err.Error() + ", being given back" }

func (u *unwanted) Unwrap() []error { return []error{u.err, ErrOutcomeUnknown} }

// try is TryAcquire: one claim, and one more if the key was free by the time the
// refusal was explained.
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
		return nil, &fault{op: "acquire", key: w.key, err: err} // it goes on: nothing is unknown
	}
	return nil, failed("acquire", w.key, err)
}

func (c *Client) tryOnce(w *waiter) (*Lease, error) {
	if !c.enter() {
		return nil, &abandoned{ErrClosed}
	}
	return c.send(w, 0, false, c.clock.Now())
}

// An exchange decides which of two got there first: the reply of a claim, or what
// ends its caller's wait for it.
type exchange struct {
	over  atomic.Bool
	reply chan struct{}
	lease *Lease
	err   error
}

// send makes one claim, under an ID of its own, and returns when it is answered
// or the caller's wait is over. In the latter case the claim goes on, and if it is
// granted the lease is given back. The claim was entered already; trust in its
// grant begins at now.
func (c *Client) send(w *waiter, want time.Duration, seenHeld bool, now monotonic.Moment) (*Lease, error) {
	if c.prompt {
		defer c.background.Done()
		return c.claim(w, want, seenHeld, now)
	}
	return c.apart(w, func() (*Lease, error) { return c.claim(w, want, seenHeld, now) })
}

// apart runs a claim on a goroutine of its own, which was entered already, and
// lets the caller go when its context or its patience is over, or the client shuts
// down.
func (c *Client) apart(w *waiter, claim func() (*Lease, error)) (*Lease, error) {
	x := &exchange{reply: make(chan struct{})}
	go func() {
		defer c.background.Done()
		deepen()
		x.lease, x.err = claim()
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
		return nil, &abandoned{fmt.Errorf("the store has not answered: %w", err)}
	}
	<-x.reply
	return x.lease, x.err
}

// deepen makes room on a new goroutine's stack for the calls of a database driver
// at once. Otherwise it grows under them in several steps, each of which copies
// what is there: a tenth of what a free pair computes in this process. The MongoDB
// driver needs over 16 KB of it, with the frames of the store above.
//
//go:noinline
func deepen() {
	var room [20 << 10]byte
	runtime.KeepAlive(&room)
}

// abandoned is why a caller left, of its own will or as the client was closed,
// maybe while a claim was on its way.
type abandoned struct{ err error }

func (a *abandoned) Error() string { return a.err.Error() }

func (a *abandoned) Unwrap() error { return a.err }

func (c *Client) claim(w *waiter, want time.Duration, seenHeld bool, sent monotonic.Moment) (*Lease, error) {
	claim := w.terms.claim(w.key, c.newID(), c.owner)
	claim.Want, claim.Held = want, seenHeld
	if knob.ReuseID {
		claim.ID = c.unsettledID(claim.Ref)
	}
	l := c.newLease(w, claim.ID)
	ctx, cancel := c.bound(w.ctx, sent.Add(min(claim.TTL, maxCall)))
	grant, err := c.store.Acquire(ctx, claim)
	cancel()
	return c.settle(l, w, nil, sent, grant, err)
}

func (c *Client) newID() string {
	if knob.OneID {
		return "ONE-ID-FOR-ALL-" + c.owner
	}
	return rand.Text()
}

// unsettledID is that of an earlier claim of the key which is still being cleaned
// up, for the test that shows what comes of it.
func (c *Client) unsettledID(claim store.Ref) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref := range c.unknown {
		if ref.Key == claim.Key {
			return ref.ID
		}
	}
	return claim.ID
}

// settle begins the lease that a claim was granted, or sees to it that nothing of
// the claim is left behind. from is the acquisition that a hand-over named.
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

// drifted is how long d of the store's may last on a clock that runs as wrong as
// we allow for.
func drifted(d time.Duration) time.Duration { return d + d/1000 + time.Millisecond }

// undo cleans up after a claim of unknown outcome, in the background, until the
// store says that it is settled or what it may have granted has run out.
func (c *Client) undo(claim store.Ref, from *store.Ref, until monotonic.Moment) {
	if knob.UnknownIsNotHeld {
		return
	}
	c.mu.Lock()
	c.unknown[claim] = struct{}{}
	c.mu.Unlock()
	loop := func() {
		if !c.undone(claim, from, until) {
			return // torn down: Close names it
		}
		c.mu.Lock()
		delete(c.unknown, claim)
		c.mu.Unlock()
		c.freed(claim.Key)
	}
	c.spawn(loop)
}

func (c *Client) undone(claim store.Ref, from *store.Ref, until monotonic.Moment) bool {
	for pause := backoff.New(10*time.Millisecond, 5*time.Second); ; {
		ctx, cancel := c.within(context.Background(), min(maxCall, max(c.clock.Until(until), time.Second)))
		settled, err := c.store.Undo(ctx, claim, from)
		cancel()
		if settled || store.IsVerdict(err) {
			return true
		}
		if c.clock.Now() >= until {
			c.logger.Info("mongolock: gave up cleaning up a claim, which has run out", "key", claim.Key, "error", err)
			return true
		}
		if !c.pause(min(pause.Next(), max(c.clock.Until(until), time.Millisecond))) {
			return false
		}
	}
}
