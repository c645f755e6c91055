package mongolock

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/store"
)

// What one process may do for itself while others wait for the key.
const (
	streakMost = 16                     // hand-overs in a row once others left word
	streakTime = 100 * time.Millisecond // and how long they may take
	shyTime    = 50 * time.Millisecond  // how long its waiters then leave the key alone
	shyLook    = 10 * time.Millisecond  // how often they look whether another has it
)

// A release is how far giving a lease back has come. Protected by the lease's mu.
type release struct {
	trying    bool // an attempt is under way
	tried     bool // an earlier attempt may have been applied
	retrying  bool
	settled   bool          // nothing of the lease is left in the store, or ever will be
	flight    chan struct{} // closed when the attempt is over; made by whoever waits for it
	err       error         // once settled the answer of Release; before, of the last attempt
	notBefore time.Time     // the holder is given until then to stop
	timer     *time.Timer   // gives a lost lease back
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
	err := l.attempt(values)
	end(Outcome{Err: err, Token: l.token, Count: 1})

	l.mu.Lock()
	if r.flight != nil {
		close(r.flight)
	}
	r.trying, r.flight = false, nil
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
	for pause := backoff(50*time.Millisecond, 5*time.Second); l.client.pause(pause()); {
		if settled, _ := l.result(); settled {
			return
		}
		l.mu.Lock()
		over := !time.Now().Before(l.until)
		l.mu.Unlock()
		if over {
			l.client.logger.Info("mongolock: could not give a lease back before it ran out", "key", l.key, "token", l.token)
			l.settle(l.verdict())
			l.client.freed(l.key)
			return
		}
		_ = l.giveBack()
	}
}

// attempt hands the lease over to a waiter of this process, or removes it.
func (l *Lease) attempt(values context.Context) error {
	until := time.Now().Add(releaseBound) // for both, if it takes both
	if w, s := l.successor(); w != nil {
		if done, err := l.handOver(w, s, until); done {
			return err
		}
	}
	ctx := l.client.bound(values, until)
	wanted, err := l.client.store.Release(ctx, l.ref, l.keep())
	ctx.end()

	l.mu.Lock()
	tried := l.release.tried
	unknown := err != nil && !certain(err)
	l.release.tried = tried || unknown
	l.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, store.ErrGone) && tried:
		err = l.verdict() // what is not there after our own lost removal was removed by it
	case errors.Is(err, store.ErrGone):
		if err = l.verdict(); err == nil {
			err = &fault{op: "release", key: l.key, err: errGone}
		}
	case verdict(err):
		err = &fault{op: "release", key: l.key, err: err}
	default:
		if unknown { // it may have been applied, and then the word of those who wait is gone with it
			l.client.freed(l.key)
		}
		return failed("release", l.key, err)
	}
	if wanted && l.turnIsOver() {
		l.client.leaveToOthers(l.key) // before settle wakes our own
	}
	l.settle(err)
	if wanted || tried {
		l.client.freed(l.key)
	}
	return err
}

// verdict is what Release answers once nothing of the lease is left: nil, or why
// it had ended before.
func (l *Lease) verdict() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.err, ErrLost) {
		return &fault{op: "release", key: l.key, err: l.err}
	}
	return nil
}

// settle ends the business of giving back, with what Release is to answer.
func (l *Lease) settle(err error) {
	l.mu.Lock()
	r := &l.release
	r.settled, r.err = true, err
	if r.timer != nil {
		r.timer.Stop()
	}
	l.mu.Unlock()
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[l.key]
	switch listed := c.delist(l); {
	case q == nil:
	case q.holder == l:
		q.holder = nil
		c.wake(l.key)
		c.tidy(q)
	case listed && l.terms.shares():
		q.sharers--
		c.wake(l.key)
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
		l.release.timer = time.AfterFunc(time.Until(l.release.notBefore), l.giveBackInBackground)
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
	return time.Until(l.release.notBefore)
}

// keep is how long the key must stay taken, from its grant; 0 once that is over.
func (l *Lease) keep() time.Duration {
	if l.terms.minHold == 0 || l.unseen.Load() || time.Since(l.granted) >= drifted(l.terms.minHold) {
		return 0
	}
	return l.terms.minHold
}

// A streak is how often a key was handed over in a row since others left word. It
// goes with the key from lease to lease.
type streak struct {
	count int
	since time.Time
}

// on is the streak after one more, false if that is one too many.
func (s streak) on() (streak, bool) {
	if s.count == 0 {
		s.since = time.Now()
	}
	s.count++
	if knob.Greedy {
		return s, true
	}
	return s, s.count <= streakMost && time.Since(s.since) <= streakTime
}

// successor is the waiter of this process that the lease may be handed to, and
// the streak that this makes.
func (l *Lease) successor() (*waiter, streak) {
	c := l.client
	c.mu.Lock()
	q := c.queues[l.key]
	waited := q != nil && q.head != nil && !l.terms.shares() && !q.head.terms.shares()
	c.mu.Unlock()
	if !waited {
		return nil, streak{}
	}
	l.mu.Lock()
	may := (l.err == nil || l.err == ErrReleased) && !l.release.tried && time.Now().Before(l.deadline) //nolint:errorlint // the very cause
	var s streak
	if l.wanted && may {
		s, may = l.streak.on()
	}
	l.mu.Unlock()
	if !may || l.keep() > 0 {
		return nil, streak{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q = c.queues[l.key]
	if q == nil || q.holder != l || q.head == nil || q.head.asking || q.head.terms.shares() {
		return nil, streak{}
	}
	return q.head, s
}

// handOver puts w's claim in the place of this lease, in one step. Not done means
// that nothing was changed: release as usual.
func (l *Lease) handOver(w *waiter, s streak, until time.Time) (done bool, err error) {
	c := l.client
	values, end := c.observe(w.ctx, OpTransfer, l.key)
	claim := w.terms.claim(w.key, c.newID(), c.owner)
	sent := time.Now()
	ctx := c.bound(values, earlier(until, sent.Add(claim.TTL)))
	grant, err := c.store.Transfer(ctx, l.ref, claim)
	ctx.end()
	next, err := c.settle(w, claim, &l.ref, sent, grant, err)
	end(Outcome{Err: err, Token: grant.Token, Count: 1})
	switch {
	case err == nil:
		next.mu.Lock()
		next.streak = s
		next.mu.Unlock()
		l.end(ErrReleased)
		l.settle(nil)
		c.deliver(w, next)
		return true, nil
	case errors.As(err, new(*unwanted)):
		l.end(ErrReleased)
		l.settle(nil)
		return true, nil
	case certain(err):
		return false, nil
	}
	l.mu.Lock()
	l.release.tried = true
	l.mu.Unlock()
	return true, failed("release", l.key, err)
}
