package mongolock

import (
	"errors"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// What one client may keep for itself while waiters of other processes have left word.
const (
	streakMost  = 16                     // hand-overs in a row
	streakTime  = 100 * time.Millisecond // and how long they may take
	streakPause = time.Second            // after this long without one a new streak begins
)

// A streak is how often a key was handed over in a row since waiters of other processes
// left word. It goes with the key from lease to lease.
type streak struct {
	count int
	since monotonic.Moment
}

// on is the streak with one hand-over more; false if that is too many.
func (s streak) on(now monotonic.Moment) (streak, bool) {
	if s.count == 0 {
		s.since = now
	}
	s.count++
	if knob.Greedy {
		return s, true
	}
	return s, s.count <= streakMost && now.Sub(s.since) <= streakTime
}

// successor is the waiter of this client that the lease may be handed to, and the
// streak with that hand-over. Nil if there is no such waiter.
func (l *Lease) successor() (*waiter, streak) {
	c := l.client
	if l.terms.shares() {
		return nil, streak{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := l.queue
	if q.holder != l || q.head == nil || q.head.asking || q.head.terms.shares() {
		return nil, streak{}
	}
	now := c.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	may := (l.err == nil || l.err == ErrReleased) && !l.release.inDoubt && now < l.ends() && l.keep() == 0 //nolint:errorlint // the very cause
	var s streak
	if l.wanted && may {
		s, may = l.streak.on(now)
	}
	if !may {
		return nil, streak{}
	}
	return q.head, s
}

// handOver puts w's claim in the place of this lease, in one step. done means that
// this lease is settled. Unless it was handled, nothing was changed: release as usual.
func (l *Lease) handOver(w *waiter, s streak, until monotonic.Moment) (done, handled bool, err error) {
	c := l.client
	values, end := c.observe(w.ctx, OpTransfer, l.key, w.terms)
	claim := w.terms.claim(w.key, c.newID(), c.owner)
	sent, next := c.clock.Now(), c.newLease(w, claim.ID)
	next.streak = s
	ctx, cancel := c.bound(values, min(until, sent.Add(claim.TTL)))
	from := l.ref()
	grant, err := c.store.Transfer(ctx, from, claim)
	cancel()
	next, err = c.settle(next, w, &from, sent, grant, err)
	end(Outcome{Err: err, Token: grant.Token, Count: 1})
	if knob.DoneAfterTransfer && (err == nil || errors.As(err, new(*unwanted))) {
		l.end(ErrReleased)
	}
	switch {
	case err == nil:
		c.deliver(w, next) // before what is left to do for this one
		l.settle(nil)
		return true, true, nil
	case errors.As(err, new(*unwanted)):
		l.settle(nil)
		return true, true, nil
	case store.IsCertain(err):
		return false, false, nil
	}
	l.doubt()
	return false, true, failed("release", l.key, err)
}

// timeToStop is how long the holder of a lost lease has before it is given back.
func (l *Lease) timeToStop() time.Duration {
	if knob.GiveBackAtDeadline {
		return 0
	}
	return l.margin
}

// keep is how long after its grant the key must stay taken; 0 once that time is over.
func (l *Lease) keep() time.Duration {
	if l.terms.minHold == 0 || l.unseen.Load() || l.client.clock.Since(l.granted) >= drifted(l.terms.minHold) {
		return 0
	}
	return l.terms.minHold
}

// isPlain reports whether the lease can be released unseen: it is exclusive, as far as is known
// nobody waits for it, it was not lost, and nothing of it stays.
func (l *Lease) isPlain() bool {
	keep := l.keep()
	l.mu.Lock()
	defer l.mu.Unlock()
	return keep == 0 && !l.terms.shares() && !l.wanted && l.release.loss == nil
}
