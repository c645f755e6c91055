package mongolock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// A releaseState says how far a release has come.
type releaseState int

const (
	kept      releaseState = iota // no attempt was made
	releasing                     // the first attempt is under way
	unsettled                     // an attempt failed: the client repeats it in the background
	repeating                     // another attempt is under way, by the background or by the caller
	settled                       // the store has nothing of the lease, and never will have
)

// A release tracks how one lease is given back:
//
//	kept ──▶ releasing ──▶ settled ◀── repeating
//	              │                      ▲ │
//	              └──▶ unsettled ────────┘ │
//	                       ▲───────────────┘
//
// Only begin, failed and settle change the state. Any state may become settled. A release is
// protected by the lease's mu.
type release struct {
	state   releaseState
	inDoubt bool          // an attempt may have been applied although its reply was lost
	attempt chan struct{} // closed when the attempt under way is over; made by the first caller that waits for it
	err     error         // the last attempt's; once settled, what Release returns
	loss    *loss         // nil for most
}

// A loss is the end of a lease that its holder did not bring about.
type loss struct {
	notBefore monotonic.Moment // the holder is given until then to stop
	timer     *time.Timer      // gives the lease back
}

// begin makes the caller the one to attempt the release, unless it is settled. If another
// attempt is under way, begin returns a channel that closes with its end.
func (r *release) begin() (other <-chan struct{}) {
	switch r.state {
	case kept:
		r.state = releasing
	case unsettled:
		r.state = repeating
	case releasing, repeating:
		if r.attempt == nil {
			r.attempt = make(chan struct{})
		}
		return r.attempt
	case settled:
	}
	return nil
}

// failed ends an attempt that did not settle the release, and reports whether it was the first
// one: then the caller makes sure that others follow.
func (r *release) failed(err error) (first bool) {
	if r.state == settled { // another attempt settled it meanwhile
		return false
	}
	first = r.state == releasing
	r.state, r.err = unsettled, err
	r.attemptIsOver()
	return first
}

// settle ends the release. err is what Release returns from now on.
func (r *release) settle(err error) {
	r.state, r.err = settled, err
	if r.loss != nil && r.loss.timer != nil {
		r.loss.timer.Stop()
	}
	r.attemptIsOver()
}

func (r *release) attemptIsOver() {
	if r.attempt != nil {
		close(r.attempt)
		r.attempt = nil
	}
}

// Release ends the lease and frees the key, or keeps the key for this process if Linger says
// so. It takes at most 5 s.
//
// It returns nil if the key is freed, now or by an earlier Release. It returns ErrDetached
// after Detach, and an error matching ErrLost if the lease was lost before; then no other lease
// is affected. Any other error is the store's, which also matches ErrLost if the lease was lost
// before. After such an error Release may be called again, and it goes on in the background
// until it succeeds or the TTL is over.
func (l *Lease) Release() error {
	// First: a holder that still trusts the lease must learn of its end before the next one can
	// begin.
	if !knob.DoneAfterTransfer && l.end(ErrReleased) && l.linger() {
		return nil
	}
	err := l.giveBack()
	if knob.DoneAfterTransfer {
		l.end(ErrReleased)
	}
	return err
}

// giveBack makes one attempt to remove the lease from the store, or waits for the attempt under
// way.
func (l *Lease) giveBack() error {
	other, over := l.beginRelease()
	if other != nil {
		<-other
	}
	if other != nil || over {
		_, err := l.result()
		return err
	}

	values, end := l.client.observe(l.values, OpRelease, l.key, l.terms)
	done, err := l.attempt(values)
	end(Outcome{Err: err, Token: l.token, Count: 1})
	if !done && l.failedRelease(err) {
		l.client.spawn(func() { l.client.repeat([]*Lease{l}) })
	}
	return err
}

// beginRelease makes the caller the one to attempt the release. If another attempt is under
// way, it returns a channel that closes with its end. over says that there is nothing left to
// release.
func (l *Lease) beginRelease() (other <-chan struct{}, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.release.state == settled || l.err == ErrDetached { //nolint:errorlint // the very cause
		return nil, true
	}
	return l.release.begin(), false
}

// failedRelease ends an attempt that did not settle the release, and reports whether the
// caller has to make sure that others follow.
func (l *Lease) failedRelease(err error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.release.failed(err)
}

// giveBackUnseen ends a lease that no caller has received, and frees the key at once, whatever
// its MinHold: a caller that was refused the key leaves nothing behind.
func (l *Lease) giveBackUnseen(cause error) {
	l.unseen.Store(true)
	l.end(cause)
	l.giveBackInBackground()
}

// result returns whether the release is over, and its error so far.
func (l *Lease) result() (done bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.release.state != settled && l.err == ErrDetached { //nolint:errorlint // the very cause
		return false, ErrDetached
	}
	return l.release.state == settled, l.release.err
}

// attempt hands the lease over to a waiter of this client, or removes it.
func (l *Lease) attempt(values context.Context) (done bool, err error) {
	c := l.client
	until := monotonic.Never
	if !c.prompt {
		until = c.clock.Now().Add(releaseBound) // for both calls, if two are needed
	}
	if w, s := l.successor(); w != nil {
		if done, handled, err := l.handOver(w, s, until); handled {
			return done, err
		}
	}
	ctx, cancel := c.bound(values, until)
	beside := l.announceBeside()
	wanted, err := c.store.Release(ctx, l.ref(), l.keep())
	cancel()
	inTime := err == nil
	done, free, err := l.released(wanted, err)
	if free {
		c.freedAfter(l.key, beside, inTime)
	}
	return done, err
}

// released handles the store's answer to a release. free says that the key may be free for a
// waiter.
func (l *Lease) released(wanted bool, err error) (done, free bool, answer error) {
	if err != nil && !store.IsVerdict(err) {
		unknown := !store.IsCertain(err)
		if unknown { // it may have been applied: then the waiters' word is gone with it
			l.doubt()
		}
		return false, unknown, l.withLoss(failed("release", l.key, err))
	}
	if wanted && l.turnIsOver() {
		l.client.leaveToOthers(l.key) // before forget wakes this client's own waiters
	}
	l.mu.Lock()
	err = l.answered(err)
	inDoubt := l.release.inDoubt
	l.release.settle(err)
	l.mu.Unlock()
	l.forget()
	return true, wanted || inDoubt, err
}

// withLoss adds to a store's error that the lease was lost before, if it was.
func (l *Lease) withLoss(err error) error {
	if ended := l.Err(); isLoss(ended) {
		return &fault{op: "release", key: l.key, err: fmt.Errorf("%w; and: %w", ended, err)}
	}
	return err
}

// doubt remembers that an attempt may have been applied.
func (l *Lease) doubt() {
	l.mu.Lock()
	l.release.inDoubt = true
	l.mu.Unlock()
}

// answered returns what Release returns once the store has answered err and has nothing of the
// lease left: nil, or why the lease had ended before. Call it with l.mu held.
func (l *Lease) answered(err error) error {
	switch {
	case err != nil && !errors.Is(err, store.ErrGone):
		return &fault{op: "release", key: l.key, err: err}
	case isLoss(l.err):
		return &fault{op: "release", key: l.key, err: l.err}
	case err != nil && !l.release.inDoubt: // otherwise our own attempt removed it, and its reply was lost
		if err == store.ErrGone { //nolint:errorlint // without a word more
			return &fault{op: "release", key: l.key, err: errGone}
		}
		return &fault{op: "release", key: l.key, err: fmt.Errorf("%w (%w)", errGone, err)}
	}
	return nil
}

// settle ends the release. err is what Release returns from now on.
func (l *Lease) settle(err error) {
	l.mu.Lock()
	l.release.settle(err)
	l.mu.Unlock()
	l.forget()
}

// forget takes a settled lease out of its client.
func (l *Lease) forget() {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	listed := c.delist(l)
	if listed && l.listens {
		c.watch.feed.Leave()
	}
	switch q := l.queue; {
	case q.holder == l:
		q.holder = nil
		q.wake()
	case listed && l.terms.shares():
		q.sharers--
		q.wake()
	}
}

// afterLoss plans when a lost lease is given back. Its holder first has one margin to stop, as
// if the lease had run out.
func (l *Lease) afterLoss(cause error) {
	if errors.Is(cause, errGone) || errors.Is(cause, errSession) { // the session's end frees the key
		l.settle(&fault{op: "release", key: l.key, err: cause})
		return
	}
	l.mu.Lock()
	if l.release.state != settled {
		l.release.loss.timer = time.AfterFunc(l.client.clock.Until(l.release.loss.notBefore), l.giveBackInBackground)
	}
	l.mu.Unlock()
}
