package mongolock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// A Lease is one acquisition of a key. It is renewed in the background until it
// is released, detached or lost, or until MaxHold. All methods are safe for
// concurrent use. The protocol stands in the package comment.
type Lease struct {
	client  *Client
	key, id string
	terms   *terms
	margin  time.Duration
	token   int64
	since   time.Time        // by the store's clock, for display
	granted monotonic.Moment // when we knew
	maxEnd  monotonic.Moment // MaxHold after it was asked for; zero without
	values  context.Context  // of the acquire: for observers and stores, never its end
	endHold func(Outcome)
	queue   *queue // protected by Client.mu, and the lease's own as long as it is in there

	mu       sync.Mutex       // protects what follows; never held across a store call
	deadline monotonic.Moment // trusted until then
	until    monotonic.Moment // the store may honour it until then
	err      error            // why it ended; nil while held
	timer    *time.Timer
	done     chan struct{} // made when asked for
	contexts *contexts     // made when asked for
	wanted   bool          // the record carried somebody's word at the grant
	failing  bool          // the last renewal failed
	unseen   atomic.Bool   // nobody was given it: there is nothing that MinHold could protect
	streak   streak
	renewing chan struct{}
	release  release

	prev, next *Lease // in the client's list; protected by Client.mu

	slot slot // in the keeper's schedule; protected by the keeper's mutex
}

// newLease is a lease that is yet to be granted.
func (c *Client) newLease(w *waiter, id string) *Lease {
	return &Lease{client: c, key: w.key, id: id, terms: w.terms, values: w.ctx, slot: slot{index: unscheduled}}
}

// grant takes in the answer to the claim that was sent then, and came now.
func (l *Lease) grant(sent, now monotonic.Moment, g store.Grant) {
	l.margin = l.client.marginFor(l.terms.ttl)
	l.token, l.since, l.wanted = g.Token, g.Since, g.Wanted
	l.granted = now
	l.deadline = sent.Add(g.Left - l.margin)
	l.until = now.Add(drifted(l.terms.ttl))
	if l.terms.maxHold > 0 {
		l.maxEnd = sent.Add(l.terms.maxHold)
		l.deadline = min(l.deadline, l.maxEnd)
	}
	l.slot.due = l.firstRenewal(sent, g.Left)
}

// start begins the lease's life, unless it is over already or the client is
// closed; then it is given back, without a margin as nobody ever saw it.
func (l *Lease) start(w *waiter) error {
	c := l.client
	left := l.deadline.Sub(l.granted)
	if left > 0 {
		_, l.endHold = c.observe(l.values, OpHold, l.key)
	}
	c.mu.Lock()
	c.enlist(l)
	if l.queue = w.queue; l.queue == nil || w.gone {
		l.queue = c.queueOf(l.key)
	}
	if l.terms.shares() {
		l.queue.sharers++
	} else {
		l.queue.holder = l
	}
	closed := c.drained.Load()
	c.mu.Unlock()
	switch {
	case left <= 0:
		l.giveBackUnseen(ErrReleased)
		return &unwanted{errLate}
	case closed:
		l.giveBackUnseen(ErrClosed)
		return &unwanted{ErrClosed}
	}
	if l.terms.noRenewal || l.maxEnd != 0 {
		l.mu.Lock()
		l.watchDeadline(left)
		l.mu.Unlock()
	} // else the first renewal does, which comes before the deadline
	if !l.terms.noRenewal {
		c.keeper.add(l, l.slot.due)
	}
	return nil
}

// watchDeadline sets the timer that ends the lease. With l.mu held.
func (l *Lease) watchDeadline(left time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(left+knob.LateTimer, l.expire)
	}
}

// firstRenewal is a third of the TTL after the claim was sent, or now if that is
// past, or if the store promised less than half of it.
func (l *Lease) firstRenewal(sent monotonic.Moment, left time.Duration) monotonic.Moment {
	due := sent.Add(l.terms.ttl / 3)
	if left < l.terms.ttl/2 || due < l.granted {
		return l.granted
	}
	return due
}

func (l *Lease) ref() store.Ref { return store.Ref{Key: l.key, ID: l.id, Mode: l.terms.mode} }

// Key is what the lease is of.
func (l *Lease) Key() string { return l.key }

// Token is greater than that of every earlier lease of the key, and does not
// change. Give it to the resource you write to (see package fence): it alone can
// refuse a holder that was paused past its lease.
func (l *Lease) Token() int64 { return l.token }

// ID names this acquisition and no other. It is as good as the lease: do not log it.
func (l *Lease) ID() string { return l.id }

// Done is closed when the lease ends, one margin before anybody else can be
// granted the key.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err is nil while the lease is held, then why it ended: ErrReleased, ErrDetached,
// ErrClosed, or an error matching ErrLost. It looks at the clock itself, so that a
// process that was stopped learns at once.
func (l *Lease) Err() error {
	now := l.client.clock.Now()
	l.mu.Lock()
	err, over := l.err, l.over(now)
	l.mu.Unlock()
	if err == nil && over {
		l.expire()
		l.mu.Lock()
		err = l.err
		l.mu.Unlock()
	}
	return err
}

// over reports whether the clock has ended the lease. With l.mu held.
func (l *Lease) over(now monotonic.Moment) bool {
	return now >= l.deadline.Add(knob.LateTimer)
}

// Remaining is how long the lease may be trusted without another renewal; zero
// once it ended.
func (l *Lease) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.client.clock.Until(l.deadline))
}

// Renew renews the lease now. With NoRenewal it is the only thing that does. When
// ctx ends first, the renewal goes on without it.
func (l *Lease) Renew(ctx context.Context) error {
	if ctx.Err() != nil {
		return &fault{op: "renew", key: l.key, err: contextError(ctx)}
	}
	if err := l.Err(); err != nil {
		return &fault{op: "renew", key: l.key, err: err}
	}
	answer := make(chan error, 1)
	if !l.client.spawn(func() { answer <- l.renewNow() }) {
		return &fault{op: "renew", key: l.key, err: ErrClosed}
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return &fault{op: "renew", key: l.key, err: contextError(ctx)}
	}
}

// renewNow waits for a renewal under way and then sends one of its own: what the
// caller did before must come before it.
func (l *Lease) renewNow() error {
	for {
		mine, other := l.beginRenewal()
		if mine {
			break
		}
		if other == nil {
			return &fault{op: "renew", key: l.key, err: l.Err()}
		}
		<-other
	}
	return l.client.keeper.renew([]*Lease{l})[0]
}

// Detach renews once and ends the lease here without freeing the key. The ticket
// lets any process Resume it within the TTL, and is as good as the lease: guard it
// like one. On an error the lease goes on as before, unless Err says otherwise. A
// lease that shares its key cannot be detached (errors.ErrUnsupported).
func (l *Lease) Detach(ctx context.Context) (ticket string, err error) {
	if l.terms.shares() {
		return "", &fault{op: "detach", key: l.key, err: fmt.Errorf("%w: the lease is %s, and only one that has its key alone can be resumed", errors.ErrUnsupported, l.terms.mode)}
	}
	if err := l.Renew(ctx); err != nil {
		return "", fmt.Errorf("mongolock: detach: %w", err)
	}
	if !l.end(ErrDetached) {
		return "", &fault{op: "detach", key: l.key, err: l.Err()}
	}
	l.settle(ErrDetached)
	return l.ticket(), nil
}

// LogValue shows key, token and state, never the ID.
func (l *Lease) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("key", l.key), slog.Int64("token", l.token)}
	if err := l.Err(); err != nil {
		attrs = append(attrs, slog.String("ended", err.Error()))
	} else {
		attrs = append(attrs, slog.Duration("remaining", l.Remaining()))
	}
	return slog.GroupValue(attrs...)
}

// expire is the deadline's timer, which is not moved when a renewal moves the
// deadline: it looks, and comes again.
func (l *Lease) expire() {
	now := l.client.clock.Now()
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	if !l.over(now) {
		l.timer.Reset(l.deadline.Sub(now) + knob.LateTimer)
		l.mu.Unlock()
		return
	}
	cause := errNotRenewed
	if l.maxEnd != 0 && now >= l.maxEnd {
		cause = ErrMaxHold
	}
	l.mu.Unlock()
	l.end(cause)
}

// end ends the lease once; the first cause stays. Done is closed and the contexts
// are cancelled when it returns. It does not touch the store: if the lease was
// lost, what may be left there is given back no earlier than one margin from now.
func (l *Lease) end(cause error) bool {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return false
	}
	l.err = cause
	lost := isLoss(cause)
	if lost {
		l.release.loss = &loss{notBefore: l.client.clock.Now().Add(l.timeToStop())} // Close looks at it from now on
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.done != nil {
		close(l.done)
	}
	contexts := l.revoke(cause)
	l.mu.Unlock()
	for lc := range contexts {
		lc.cancel(cause)
	}
	l.client.keeper.remove(l)
	if l.endHold != nil {
		l.endHold(Outcome{Err: cause, Token: l.token, Count: 1})
	}
	if lost {
		l.client.logger.Warn("mongolock: lease lost", "key", l.key, "token", l.token, "cause", cause)
		l.afterLoss(cause)
	}
	return true
}

// status is this lease as a store would show it, reckoned from its grant.
func (l *Lease) status() store.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return store.Status{
		Key: l.key, Mode: store.Exclusive, Limit: 1, Now: l.since.Add(l.client.clock.Since(l.granted)),
		Holders: []store.Holder{{
			ID: l.id, Owner: l.client.owner, Note: l.terms.note, Since: l.since,
			ExpireAt: l.since.Add(l.deadline.Sub(l.granted) + l.margin),
		}},
	}
}
