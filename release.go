package mongolock

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// A release is how far giving a lease back has come. Protected by the lease's mu.
type release struct {
	trying   bool // an attempt is under way
	tried    bool // an earlier attempt may have been applied
	retrying bool
	settled  bool          // nothing of the lease is left in the store, or ever will be
	flight   chan struct{} // closed when the attempt is over; made by whoever waits for it
	err      error         // once settled the answer of Release; before, of the last attempt
	loss     *loss         // nil for most
}

// A loss is the end of a lease that its holder did not bring about.
type loss struct {
	notBefore monotonic.Moment // the holder is given until then to stop
	timer     *time.Timer      // gives the lease back
}

// Release ends the lease and frees the key, for which it takes at most 5 s.
//
// It returns nil if the key is freed, now or by an earlier Release; an error
// matching ErrLost if the lease had ended on its own, in which case nobody else's
// is touched; ErrDetached after Detach. Any other error is the store's: Release
// may then be called again, and goes on in the background until it succeeds or
// the TTL is over.
func (l *Lease) Release() error {
	if !knob.DoneAfterTransfer {
		l.end(ErrReleased) // first of all: whoever still trusts it must know before the next one can
	}
	err := l.giveBack()
	if knob.DoneAfterTransfer {
		l.end(ErrReleased)
	}
	return err
}

// giveBack makes one attempt to remove what the lease has in the store, or waits
// for the one under way.
func (l *Lease) giveBack() error {
	l.mu.Lock()
	r := &l.release
	switch {
	case r.settled:
		defer l.mu.Unlock()
		return r.err
	case l.err == ErrDetached: //nolint:errorlint // the very cause
		l.mu.Unlock()
		return ErrDetached
	case r.trying:
		if r.flight == nil {
			r.flight = make(chan struct{})
		}
		flight := r.flight
		l.mu.Unlock()
		<-flight
		_, err := l.result()
		return err
	}
	r.trying = true
	l.mu.Unlock()

	values, end := l.client.observe(l.values, OpRelease, l.key)
	settled, err := l.attempt(values)
	end(Outcome{Err: err, Token: l.token, Count: 1})
	if settled {
		return err
	}

	l.mu.Lock()
	r.land()
	again := !r.settled && !r.retrying
	if again {
		r.err, r.retrying = err, true
	}
	l.mu.Unlock()
	if again {
		l.client.spawn(l.retry)
	}
	return err
}

// giveBackUnseen ends a lease that nobody was given, and frees the key at once,
// whatever its MinHold: who was told that he does not have it leaves nothing behind.
func (l *Lease) giveBackUnseen(cause error) {
	l.unseen.Store(true)
	l.end(cause)
	l.giveBackInBackground()
}

func (l *Lease) giveBackInBackground() {
	if !l.client.spawn(func() { _ = l.giveBack() }) {
		_ = l.giveBack() // the client is closing, and waits for whoever runs this
	}
}

// result is how giving back went so far.
func (l *Lease) result() (settled bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.release.settled, l.release.err
}

// retry goes on after an attempt that failed.
func (l *Lease) retry() {
	for pause := backoff.New(50*time.Millisecond, 5*time.Second); l.client.pause(pause.Next()); {
		if settled, _ := l.result(); settled {
			return
		}
		l.mu.Lock()
		over := l.client.clock.Now() >= l.until
		l.mu.Unlock()
		if over {
			l.client.logger.Info("mongolock: could not give a lease back before it ran out", "key", l.key, "token", l.token)
			l.mu.Lock()
			l.release.settle(l.answered(nil))
			l.mu.Unlock()
			l.forget()
			l.client.freed(l.key)
			return
		}
		_ = l.giveBack()
	}
}

// attempt hands the lease over to a waiter of this process, or removes it.
func (l *Lease) attempt(values context.Context) (settled bool, err error) {
	c := l.client
	until := c.clock.Now().Add(releaseBound) // for both calls, if it takes both
	if w, s := l.successor(); w != nil {
		if settled, done, err := l.handOver(w, s, until); done {
			return settled, err
		}
	}
	ctx := c.bound(values, until)
	wanted, err := c.store.Release(ctx, l.ref(), l.keep())
	ctx.end()
	if err != nil && !store.IsVerdict(err) {
		if !store.IsCertain(err) { // it may have been applied, and then the word of those who wait is gone with it
			l.mu.Lock()
			l.release.tried = true
			l.mu.Unlock()
			c.freed(l.key)
		}
		return false, failed("release", l.key, err)
	}
	if wanted && l.turnIsOver() {
		c.leaveToOthers(l.key) // before settle wakes our own
	}
	l.mu.Lock()
	err = l.answered(err)
	tried := l.release.tried
	l.release.settle(err)
	l.mu.Unlock()
	l.forget()
	if wanted || tried {
		c.freed(l.key)
	}
	return true, err
}

// answered is what Release answers once the store said err, and nothing of the lease
// is left: nil, or why it had ended before. With l.mu held.
func (l *Lease) answered(err error) error {
	switch {
	case err != nil && !errors.Is(err, store.ErrGone):
		return &fault{op: "release", key: l.key, err: err}
	case isLoss(l.err):
		return &fault{op: "release", key: l.key, err: l.err}
	case err != nil && !l.release.tried: // what is not there after our own lost removal was removed by it
		return &fault{op: "release", key: l.key, err: errGone}
	}
	return nil
}

// settle ends the business of giving back, with what Release is to answer.
func (l *Lease) settle(err error) {
	l.mu.Lock()
	l.release.settle(err)
	l.mu.Unlock()
	l.forget()
}

func (r *release) settle(err error) {
	r.settled, r.err = true, err
	if r.loss != nil && r.loss.timer != nil {
		r.loss.timer.Stop()
	}
	r.land()
}

// land ends the attempt under way.
func (r *release) land() {
	r.trying = false
	if r.flight != nil {
		close(r.flight)
		r.flight = nil
	}
}

// forget takes a settled lease out of the client.
func (l *Lease) forget() {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	switch q, listed := l.queue, c.delist(l); {
	case q.holder == l:
		q.holder = nil
		q.wake()
		c.tidy(q)
	case listed && l.terms.shares():
		q.sharers--
		q.wake()
		c.tidy(q)
	}
}

// afterLoss plans the giving back of a lease that ended on its own. Its holder
// first gets one margin to stop, as it would if the lease had run out.
func (l *Lease) afterLoss(cause error) {
	if errors.Is(cause, errGone) {
		l.settle(&fault{op: "release", key: l.key, err: cause})
		return
	}
	l.mu.Lock()
	if !l.release.settled {
		l.release.loss.timer = time.AfterFunc(l.client.clock.Until(l.release.loss.notBefore), l.giveBackInBackground)
	}
	l.mu.Unlock()
}

// timeToStop is what the holder of a lost lease gets before it is given back.
func (l *Lease) timeToStop() time.Duration {
	if knob.GiveBackAtDeadline {
		return 0
	}
	return l.margin
}

// untilGiveBack is how long Close has to wait before it may give the lease back.
func (l *Lease) untilGiveBack() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.err, ErrClosed) {
		return l.margin
	}
	if l.release.loss == nil {
		return 0
	}
	return l.client.clock.Until(l.release.loss.notBefore)
}

// keep is how long the key must stay taken, from its grant; 0 once that is over.
func (l *Lease) keep() time.Duration {
	if l.terms.minHold == 0 || l.unseen.Load() || l.client.clock.Since(l.granted) >= drifted(l.terms.minHold) {
		return 0
	}
	return l.terms.minHold
}
