package mongolock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/tether"
	"github.com/mongolock/mongolock/store"
)

// A Lease is one acquisition of a key. It is renewed in the background until it is
// released, detached or lost, or until MaxHold. All methods are safe for concurrent
// use. The package comment explains the protocol.
type Lease struct {
	client  *Client
	key, id string
	terms   *terms
	margin  time.Duration
	token   int64
	since   time.Time        // by the store's clock, for display
	granted monotonic.Moment // when this process learned of the grant
	maxEnd  monotonic.Moment // MaxHold after the claim was sent; zero: none
	values  context.Context  // the context of the call: for its values, not for its end
	endHold func(Outcome)
	queue   *queue // protected by Client.mu; does not change while the lease is in it

	mu       sync.Mutex       // protects what follows; never held across a store call
	deadline monotonic.Moment // the lease is trusted until then
	stallAt  monotonic.Moment // MaxStall after the last Progress; zero: none
	until    monotonic.Moment // the store may honour the lease until then
	err      error            // why the lease ended; nil while it is held
	timer    *time.Timer
	done     chan struct{}    // made at the first call of Done
	tether   *tether.Tether   // made at the first call of Context
	wanted   bool             // the record carried a word at the grant: a process waits for the key
	failing  bool             // the last renewal failed
	retry    *retry           // the retry in charge; an older one leaves the lease alone
	took     time.Duration    // how long the last answered renewal took
	renewed  monotonic.Moment // when the last renewal that was granted was sent
	unseen   atomic.Bool      // no caller has received the lease: MinHold has nothing to protect
	streak   streak
	renewing chan struct{}
	asking   int // calls of Renew that wait for their turn
	release  release

	under *Lease // the session that keeps the lease, beside the lease's own deadline; protected by mu
	tied  *Lease // the session that a renewal named, whether or not it was applied; protected by mu
	comes bool   // the next renewal puts the lease under a session; protected by mu
	alone bool   // the lease leaves its session, for Detach; protected by mu
	trust *trust // only in the Lease of a session itself

	prev, next *Lease // in the client's list; protected by Client.mu

	lingering
	slot slot // in the keeper's schedule; protected by the keeper's mutex
}

// newLease makes a lease that is not granted yet.
func (c *Client) newLease(w *waiter, id string) *Lease {
	l := &Lease{client: c, key: w.key, id: id, terms: w.terms, values: w.ctx, slot: slot{index: unscheduled}}
	l.listen()
	return l
}

// grant records the answer to the claim that was sent at sent. The answer came now.
func (l *Lease) grant(sent, now monotonic.Moment, g store.Grant) {
	l.margin = l.client.marginFor(l.terms.ttl)
	l.token, l.since, l.wanted, l.spare = g.Token, g.Since, g.Wanted, g.Spare
	l.granted = now
	l.deadline = sent.Add(g.Left - l.margin)
	l.until = now.Add(drifted(l.terms.ttl))
	l.limit(sent, now)
	l.slot.due = l.firstRenewal(sent, g.Left)
}

// limit sets when MaxHold and MaxStall end the lease.
func (l *Lease) limit(sent, now monotonic.Moment) {
	if l.terms.maxHold > 0 {
		l.maxEnd = sent.Add(l.terms.maxHold)
	}
	if l.terms.maxStall > 0 {
		l.stallAt = now.Add(l.terms.maxStall)
	}
}

// start begins the lease's life. If the lease has run out already, or the client is closed, it
// is given back. That needs no margin, because no caller has received the lease.
func (l *Lease) start(w *waiter) error {
	c := l.client
	left := l.ends().Sub(l.granted)
	if left > 0 {
		l.values, l.endHold = c.observe(l.values, OpHold, l.key, l.terms)
	}
	c.mu.Lock()
	under := l.under
	l.settleIn(w)
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
	if l.terms.noRenewal || l.maxEnd != 0 || l.stallAt != 0 || l.deadline <= l.slot.due {
		l.mu.Lock()
		l.watchDeadline(left)
		l.mu.Unlock()
	} // otherwise the first renewal sets the timer, before the deadline
	switch {
	case l.after != nil:
		l.goOn(under, l.slot.due)
	case !l.terms.noRenewal:
		c.keeper.add(l, l.slot.due)
	}
	return nil
}

// watchDeadline sets the timer that ends the lease, unless it is set. Call it with l.mu held.
func (l *Lease) watchDeadline(left time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(left+knob.LateTimer, l.expire)
	}
}

// firstRenewal returns when the lease is renewed for the first time: at once if the grant took
// longer than that.
func (l *Lease) firstRenewal(sent monotonic.Moment, left time.Duration) monotonic.Moment {
	return max(l.renewalDue(sent, left), l.granted)
}

func (l *Lease) ref() store.Ref { return store.Ref{Key: l.key, ID: l.id, Mode: l.terms.mode} }

// Key returns the key that the lease holds.
func (l *Lease) Key() string { return l.key }

// Token returns the lease's fencing token: greater than that of every earlier lease of the key,
// and constant. Send it with every write to the resource (see package fence): only the resource
// can refuse a holder that was paused past its lease.
func (l *Lease) Token() int64 { return l.token }

// ID returns the name of this acquisition. Only leases that Linger grants in its place, one
// after the other, have the same ID; they differ in Token. A process that knows an ID can end
// the lease: do not log it.
func (l *Lease) ID() string { return l.id }

// Done returns a channel that is closed when the lease ends. A lease that is not renewed ends
// one margin before the key can be granted again.
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

// Context returns a context that ends with parent or with the lease, whichever is first.
// context.Cause tells why it ended. Its own Err reads the clock first, so a process that was
// paused past its lease learns of it at once. Contexts derived from it learn when the timer
// fires.
func (l *Lease) Context(parent context.Context) context.Context {
	_ = l.Err() // ends a lease that ran out, even if its timer has not fired yet
	return l.contexts().Context(parent)
}

// contexts returns what makes the contexts of the lease.
func (l *Lease) contexts() *tether.Tether {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tether == nil {
		l.tether = tether.New(l)
		if l.err != nil {
			l.tether.End(l.err)
		}
	}
	return l.tether
}

// Err returns nil while the lease is held. Afterwards it says why the lease ended: ErrReleased,
// ErrDetached, ErrClosed, or an error matching ErrLost. It reads the clock itself, so a process
// that was paused learns of the end at once.
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

// Remaining returns how long the lease may be trusted without another renewal. It is zero
// once the lease has ended.
func (l *Lease) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.client.clock.Until(l.ends()))
}

// Renew renews the lease now. With NoRenewal nothing else renews it. If ctx ends first, Renew
// returns and the renewal goes on in the background.
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

// renewNow waits for a renewal that is under way and then sends another one, so that the
// renewal comes after everything that the caller did before.
func (l *Lease) renewNow() error {
	l.ask(1)
	mine, other := l.beginRenewal()
	for !mine && other != nil {
		<-other
		mine, other = l.beginRenewal()
	}
	l.ask(-1)
	if !mine {
		return &fault{op: "renew", key: l.key, err: l.Err()}
	}
	return l.client.keeper.renew([]*Lease{l})[0]
}

// end ends the lease. The first cause stays; later calls change nothing. When end returns, Done
// is closed and the contexts are cancelled. It does not touch the store. A lost lease is
// removed from the store no earlier than one margin from now.
func (l *Lease) end(cause error) bool {
	tell := l.finish(cause)
	if tell == nil {
		return false
	}
	tell()
	return true
}

// finish is end without telling the observer and the logger: the function that it returns tells
// them. The function is nil if the lease had ended already.
func (l *Lease) finish(cause error) (tell func()) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return nil
	}
	l.err = cause
	lost := isLoss(cause)
	if l.trust != nil {
		l.trust.until.Store(0)
		if l.timer != nil {
			l.timer.Stop()
		}
		l.mu.Unlock()
		return l.client.sessionEnds(l, cause)
	}
	if lost {
		l.release.loss = &loss{notBefore: l.client.clock.Now().Add(l.timeToStop())} // from now on Close waits for it
	}
	for _, timer := range []*time.Timer{l.timer, l.keepTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
	if l.done != nil {
		close(l.done)
	}
	contexts := l.tether
	l.mu.Unlock()
	contexts.End(cause)
	l.client.keeper.remove(l)
	return func() {
		if l.endHold != nil {
			l.endHold(Outcome{Err: cause, Token: l.token, Count: 1})
		}
		if lost && !l.idle {
			l.client.logger.Warn("mongolock: lease lost", "key", l.key, "token", l.token, "cause", cause)
		}
		if lost {
			l.afterLoss(cause)
		}
	}
}
