package mongolock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/cleaner"
	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/store"
)

// errLate says that the reply took longer than the lease that it granted.
var errLate = errors.New("granted too late to be of use")

// An unwanted says why a grant is being given back.
type unwanted struct{ err error }

func (u *unwanted) Error() string { return u.err.Error() + ", being given back" }

func (u *unwanted) Unwrap() []error { return []error{u.err, ErrOutcomeUnknown} }

// try is TryAcquire: one claim, and a second one if the first was refused but the key was free
// by the time that the store explained the refusal.
func (c *Client) try(ctx context.Context, key string, t *terms) (*Lease, error) {
	if c.cleaner.May(key) {
		if err := c.settleFirst(ctx, key, c.clock.Now().Add(trySettles), cleaner.ErrUnsettled); err != nil {
			return nil, err
		}
	}
	w := &waiter{ctx: ctx, key: key, terms: t}
	lease, err := c.tryOnce(w)
	var held *store.HeldError
	if errors.As(err, &held) && line.Open(&held.Status, &store.Claim{Ref: store.Ref{Mode: t.mode}, Limit: t.limit, Weight: t.weight}) {
		lease, err = c.tryOnce(w)
	}
	switch {
	case err == nil:
		return lease, nil
	case errors.As(err, new(*abandoned)):
		return nil, &fault{op: "acquire", key: w.key, err: err} // the claim goes on, and its outcome will be known
	case errors.As(err, &held):
		held.Here = c.queues.isHere(key, held.Holders)
	}
	return nil, failed("acquire", w.key, err)
}

func (c *Client) tryOnce(w *waiter) (*Lease, error) {
	return c.send(w, &store.Claim{}, c.clock.Now())
}

// An exchange is where the reply to a claim meets its caller, unless the caller has left.
// Whichever of reply and caller sets over first decides.
type exchange struct {
	over  atomic.Bool
	reply chan struct{}
	lease *Lease
	err   error
}

// abandonedFor is how much longer a claim may take than its caller waits for it. Then it is cut
// off and cleaned up, all within a second. To cut it off at once would leave a claim to clean
// up each time that a caller leaves, although most claims are answered in a moment.
const abandonedFor = 900 * time.Millisecond

// send makes one claim, under an ID of its own and on a goroutine of its own, and returns once the
// claim is answered or the caller's wait is over. In the latter case the claim goes on, and if it is
// granted the lease is given back. Trust in the grant begins at sent. ask has the place in the line,
// and hints.
func (c *Client) send(w *waiter, ask *store.Claim, sent monotonic.Moment) (*Lease, error) {
	ctx, cut := c.background.Bound(w.ctx, sent.Add(min(w.terms.ttl, maxCall)))
	x := &exchange{reply: make(chan struct{})}
	begun := c.background.Go(func() {
		x.lease, x.err = c.claim(ctx, w, ask, sent)
		cut()
		switch {
		case x.over.CompareAndSwap(false, true):
			close(x.reply)
		case x.lease != nil:
			x.lease.holding.giveBackUnseen(ErrReleased)
		default:
			c.queues.notGranted(w, ask.Place, x.err)
		}
	})
	if !begun {
		cut()
		return nil, &abandoned{ErrClosed}
	}
	if err := c.queues.wait(w, x.reply, 0); err != nil && x.over.CompareAndSwap(false, true) {
		time.AfterFunc(abandonedFor, cut)
		return nil, fmt.Errorf("the store has not answered: %w", err)
	}
	<-x.reply
	return x.lease, x.err
}

// An abandoned says why a caller left without a reply: its context or patience was over, or the
// client was closed.
type abandoned struct{ err error }

func (a *abandoned) Error() string { return a.err.Error() }

func (a *abandoned) Unwrap() error { return a.err }

// claim asks the store for the key, or for what w resumes.
func (c *Client) claim(ctx context.Context, w *waiter, ask *store.Claim, sent monotonic.Moment) (*Lease, error) {
	if c.cleaner.Full() {
		return nil, errCrowded
	}
	claim, h := c.newClaim(w, w.key)
	claim.Place, claim.Unseen, claim.Since, claim.Slow, claim.Offered, claim.InLine, claim.Held, claim.Full = ask.Place, ask.Unseen, ask.Since, ask.Slow, ask.Offered, ask.InLine, ask.Held, ask.Full
	var grant store.Grant
	var err error
	if t := w.resumes; t != nil {
		grant, err = c.store.Transfer(ctx, store.Ref{Key: t.Key, ID: t.ID, Mode: store.Exclusive}, claim)
		grant.Token = t.Token // the work goes on under its first token; later grants have greater tokens than both
	} else {
		grant, err = c.store.Acquire(ctx, claim)
	}
	return h.settleClaim(nil, sent, grant, err)
}

// newID makes an ID for an acquisition.
func (c *Client) newID() string {
	return rand.Text()
}

// settleClaim handles the reply to a claim. It begins the lease that was granted, or makes sure that
// the claim leaves nothing behind. from is the acquisition that a handoff named; nil for other
// claims.
func (h *holding) settleClaim(from *store.Ref, sent monotonic.Moment, g store.Grant, err error) (*Lease, error) {
	c := h.client
	now := c.clock.Now()
	if err != nil {
		if !store.IsCertain(err) {
			c.cleaner.Add(h.ref, from, now.Add(term.Drifted(h.terms.ttl)))
		}
		return nil, err
	}
	return h.start(h.grant(sent, now, g))
}

// trySettles is how long a TryAcquire waits for clean-ups.
const trySettles = 5 * time.Second

// settleFirst cleans up this client's earlier claims that may hold the key before another one is
// sent: at once, with one attempt each, for no longer than ctx lasts. At until it gives up,
// because of why; zero: never. An error says that such a claim may still hold the key.
func (c *Client) settleFirst(ctx context.Context, key string, until monotonic.Moment, why error) error {
	if !c.cleaner.May(key) {
		return nil
	}
	if until == 0 {
		until = monotonic.Never
	}
	bounded, cancel := context.WithDeadlineCause(ctx, c.clock.Time(until), why)
	defer cancel()
	err := c.cleaner.Settle(bounded, key)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cleaner.ErrStopped):
		return &fault{op: "acquire", key: key, err: ErrClosed}
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", cleaner.ErrUnsettled, contextError(ctx))
	case !errors.Is(err, cleaner.ErrUnsettled):
		err = fmt.Errorf("%w: %w", cleaner.ErrUnsettled, err)
	}
	return &fault{op: "acquire", key: key, err: err, unknown: true}
}

// errCrowded is why a claim was not sent.
var errCrowded = fmt.Errorf("%w: too many earlier claims of this client are not settled yet", ErrNotApplied)
