package mongolock

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock/internal/tether"
)

// A Lease is one acquisition of a key. It is renewed in the background until it is
// released, detached or lost, or until MaxHold. All methods are safe for concurrent
// use. docs/internals/lease.md explains the protocol.
type Lease struct {
	holding *holding // that it is the exported part of
}

// Key returns the key that the lease holds.
func (l *Lease) Key() string { return l.holding.ref.Key }

// Token returns the lease's fencing token: greater than that of every earlier lease of the key,
// and constant. Send it with every write to the resource (see package fence): only the resource
// can refuse a holder that was paused past its lease.
func (l *Lease) Token() int64 { return l.holding.token }

// ID returns the name of this acquisition. A process that knows an ID can end the lease: do not
// log it.
func (l *Lease) ID() string { return l.holding.ref.ID }

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
	h := l.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tether == nil {
		h.tether = tether.New(l)
		if h.err != nil {
			h.tether.End(h.err)
		} else {
			h.watched()
		}
	}
	return h.tether
}

// Done returns a channel that is closed when the lease ends. A lease that is not renewed ends
// one margin before the key can be granted again.
func (l *Lease) Done() <-chan struct{} {
	h := l.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done == nil {
		h.done = make(chan struct{})
		if h.err != nil {
			close(h.done)
		} else {
			h.watched()
		}
	}
	return h.done
}

// Err returns nil while the lease is held. Afterwards it says why the lease ended: ErrReleased,
// ErrDetached, ErrClosed, or an error matching ErrLost. It reads the clock itself, so a process
// that was paused learns of the end at once.
func (l *Lease) Err() error {
	h := l.holding
	now := h.client.clock.Now()
	h.mu.Lock()
	err := h.err
	over := err == nil && h.over(now)
	h.mu.Unlock()
	if over {
		h.expire()
		return h.why()
	}
	return err
}

// Remaining returns how long the lease may be trusted without another renewal. It is zero
// once the lease has ended.
func (l *Lease) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}
	_, left := l.glance()
	return left
}

// glance is Err and Remaining without their effect: it does not end a lease that has run
// out, as that cancels contexts and calls the logger, which may be the caller.
func (l *Lease) glance() (err error, left time.Duration) { //nolint:revive,staticcheck // as they are shown
	h := l.holding
	now := h.client.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err, 0
	}
	if h.over(now) {
		return h.whyOver(), 0
	}
	return nil, max(0, h.ends().Sub(now))
}

// Progress tells the lease that its work goes on. Only a lease with MaxStall needs it, and it
// costs no command. It does not bring back a lease that has ended.
func (l *Lease) Progress() {
	h := l.holding
	now := h.client.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.limits.Stall != 0 && h.err == nil && !h.over(now) {
		h.limits.Stall = now.Add(h.terms.maxStall)
	}
}

// Renew renews the lease now. With NoRenewal nothing else renews it. If ctx ends first, Renew
// returns and the renewal goes on in the background.
func (l *Lease) Renew(ctx context.Context) error {
	if ctx.Err() != nil {
		return l.fault("renew", contextError(ctx))
	}
	if err := l.Err(); err != nil {
		return l.fault("renew", err)
	}
	answer := make(chan error, 1)
	if !l.holding.client.background.Go(func() { answer <- l.renewNow() }) {
		return l.fault("renew", ErrClosed)
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return l.fault("renew", contextError(ctx))
	}
}

func (l *Lease) renewNow() error {
	answer, _ := l.holding.client.keeper.Renew(l.holding)
	err := answer.Err
	if ended := l.Err(); ended != nil {
		err = ended
	}
	if err == nil {
		return nil
	}
	return l.fault("renew", err)
}

func (l *Lease) fault(op string, err error) error {
	return &fault{op: op, key: l.holding.ref.Key, err: err}
}

// Release ends the lease and frees the key. It takes at most 5 s.
//
// It returns nil if the key is freed, now or by an earlier Release. It returns ErrDetached
// after Detach, and an error matching ErrLost if the lease was lost before; then no other lease
// is affected. Any other error is the store's, which also matches ErrLost if the lease was lost
// before. After such an error Release may be called again, and it goes on in the background
// until it succeeds or the TTL is over.
func (l *Lease) Release() error {
	l.holding.end(ErrReleased) // first: a holder that still trusts the lease must learn of its end before the next one can begin
	return l.holding.giveBack(releaseBound)
}

// String shows the lease's key, token and state, and never its ID.
func (l *Lease) String() string {
	err, left := l.glance()
	if err != nil {
		return fmt.Sprintf("lease of %q with token %d, ended: %v", l.Key(), l.Token(), err)
	}
	return fmt.Sprintf("lease of %q with token %d, %v left", l.Key(), l.Token(), left)
}

// Format prints String, whatever the verb. So no verb shows the ID.
func (l *Lease) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, l.String()) }

// LogValue shows the lease's key, token and state, and never its ID.
func (l *Lease) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("key", l.Key()), slog.Int64("token", l.Token())}
	if err, left := l.glance(); err != nil {
		attrs = append(attrs, slog.String("ended", err.Error()))
	} else {
		attrs = append(attrs, slog.Duration("remaining", left))
	}
	return slog.GroupValue(attrs...)
}
