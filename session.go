package mongolock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/keeper"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/observe"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/store"
)

// A session keeps the holdings of a client that have joined it: these are not renewed. The
// keeper renews the session itself. A holding in a session is trusted for two reasons, its own
// deadline and the session's, and ends when both have passed. A session that has ended stays
// ended: the next one has another ID.
type session struct {
	of *sessions
	id string
	keeper.Slot
	until atomic.Int64 // when trust in it ends; 0 once it has ended

	mu       sync.Mutex // protects what follows; taken after a holding's
	err      error      // why it ended
	term     term.Term
	timer    *time.Timer
	renewing chan struct{} // closed when the renewal under way is over; nil: none is
}

// trust returns until when the session may be trusted; 0 if it has ended, or is nil.
func (s *session) trust() monotonic.Moment {
	if s == nil {
		return 0
	}
	return monotonic.Moment(s.until.Load())
}

// says describes the session to the store.
func (s *session) says() store.Session {
	return store.Session{ID: s.id, Owner: s.of.client.owner, TTL: s.TTL}
}

// trusted returns until when the session may be trusted, unless it is renewed. Locked.
func (s *session) trusted() monotonic.Moment {
	return s.term.Trusted(0)
}

// Begin makes the caller the one to renew the session.
func (s *session) Begin() (mine bool, other <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.renewing != nil {
		return false, s.renewing
	}
	s.renewing = make(chan struct{})
	return true, nil
}

// Wait is told that the session's renewal has to wait.
func (s *session) Wait() {} // its timer is set

// Limits are those of a renewal.
func (s *session) Limits(now monotonic.Moment) (patience, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term.Patience(now, s.trusted()), s.term.RetryPause(now, s.trusted())
}

// Answer takes in the answer to a renewal of the session.
func (s *session) Answer(answer store.Renewed, sent, now monotonic.Moment) (next keeper.Next) {
	s.mu.Lock()
	close(s.renewing)
	s.renewing = nil
	held := s.err == nil && now < s.trusted()
	cause := verdict(answer.Err)
	switch {
	case answer.Err != nil:
		first := s.term.Failed(now)
		next.Again = held && cause == nil
		if next.Again && first {
			next.Tell = func() {
				s.of.client.logger.Warn("mongolock: renewal failed, trying again", "lease", "the session", "error", answer.Err)
			}
		}
	case held:
		next.Due = s.term.Renewed(sent, now, answer.Left)
		s.until.Store(int64(s.trusted()))
	default:
		s.term.Late(now)
	}
	s.mu.Unlock()
	if cause != nil {
		next.Tell = s.finish(cause)
	}
	return next
}

// send renews the session, or ends it if no holding needs it. The store's answer tells which
// leases were broken.
func (s *session) send(ctx context.Context) (store.Renewed, map[string]string) {
	needed := s.needed()
	s.of.client.calls.Add(observe.Session)
	if !needed {
		s.end(ErrReleased)
		return store.Renewed{Err: s.of.store.EndSession(ctx, s.id)}, nil // if that fails, the session runs out
	}
	r, err := s.of.store.RenewSession(ctx, s.says())
	return store.Renewed{Left: r.Left, Err: err}, r.Broken
}

// outcome is that of a renewal which was answered with err.
func (s *session) outcome(err error) Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		err = s.err
	}
	if err == nil {
		return Outcome{Count: 1}
	}
	return Outcome{Err: &fault{op: "renew", err: err}}
}

// needed reports whether a holding needs the session. One that asked for it while it was being
// begun joins it with its next renewal, which is due when the session's first is.
func (s *session) needed() bool {
	for _, h := range s.of.client.queues.unsettled() {
		h.mu.Lock()
		m := h.member
		h.mu.Unlock()
		if m.under == s || m.named == s || m.joins {
			return true
		}
	}
	return false
}

// expire runs when the timer fires. A renewal moves the deadline but not the timer.
func (s *session) expire() {
	now := s.of.client.clock.Now()
	s.mu.Lock()
	left := s.trusted().Sub(now)
	if s.err == nil && left > 0 {
		s.timer.Reset(left)
	}
	s.mu.Unlock()
	if left <= 0 {
		s.end(errNotRenewed)
	}
}

// end ends the session once.
func (s *session) end(cause error) bool {
	tell := s.finish(cause)
	if tell == nil {
		return false
	}
	tell()
	return true
}

// finish ends the session, with all leases in it whose own deadlines have passed. All of them
// have ended before tell tells the observer of any. It returns nil if the session had ended.
func (s *session) finish(cause error) (tell func()) {
	c := s.of.client
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return nil
	}
	s.err = cause
	s.until.Store(0)
	s.timer.Stop()
	margin := s.term.Margin()
	s.mu.Unlock()

	s.of.mu.Lock()
	if s.of.current == s { // no more holdings join it
		s.of.current = nil
	}
	s.of.mu.Unlock()
	c.keeper.Remove(s)
	var told []func()
	for _, h := range c.queues.unsettled() {
		if f := h.afterSession(s); f != nil {
			told = append(told, f)
		}
	}
	return func() {
		lost := isLoss(cause)
		if lost && len(told) > 0 {
			c.logger.Warn("mongolock: session lost", "leases", len(told), "cause", cause)
		}
		for _, f := range told {
			f()
		}
		if lost { // its keys are freed after the margin that their holders have to stop; waiters need not wait until it runs out
			time.AfterFunc(margin, func() { c.background.Go(func() { _ = s.of.remove(s) }) })
		}
	}
}
