package mongolock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// A session of a client is a Lease of no key: the keeper renews it as it does leases, with
// the same deadline, bounds and repetitions. Leases under it are not renewed. Each has two
// grounds for trust, its own deadline and the session's, and ends when both are over. Once a
// session has ended nothing brings it back: the next one has another ID.

// A trust is until when a session may be trusted; 0 once it has ended.
type trust struct{ until atomic.Int64 }

func (t *trust) moment() monotonic.Moment { return monotonic.Moment(t.until.Load()) }

func (l *Lease) isSession() bool { return l.trust != nil }

// trusted is until when the lease may be trusted, by its own deadline or its session's. With
// l.mu held.
func (l *Lease) trusted() monotonic.Moment {
	if l.maxEnd != 0 {
		return min(l.storeTrusted(), l.maxEnd)
	}
	return l.storeTrusted()
}

// storeTrusted is trusted, whatever MaxHold says: until then the store surely has the holder. With
// l.mu held.
func (l *Lease) storeTrusted() monotonic.Moment {
	if l.under == nil {
		return l.deadline
	}
	return max(l.deadline, l.under.trust.moment())
}

// keptBySession reports whether only the end of its session has to be told to the lease.
// With l.mu held.
func (l *Lease) keptBySession() bool { return l.under != nil && l.maxEnd == 0 && l.stallAt == 0 }

// honouredUntil is until when the store may honour the lease. A late renewal may have put it
// under a session. With l.mu held.
func (l *Lease) honouredUntil() monotonic.Moment {
	if l.tied == nil {
		return l.until
	}
	l.tied.mu.Lock()
	defer l.tied.mu.Unlock()
	if l.tied.err == nil {
		return monotonic.Never
	}
	return max(l.until, l.tied.until)
}

// renewal asks to renew the lease, and to put it under the client's session if there is one.
func (l *Lease) renewal() store.Renewal {
	r := store.Renewal{Ref: l.ref(), TTL: l.terms.ttl}
	c := l.client
	if c.sessions == nil || l.isSession() {
		return r
	}
	var session *Lease
	comes := !l.terms.noRenewal && l.terms.ttl >= c.ttl
	if comes {
		session = c.currentSession()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.comes = comes && !l.alone
	switch {
	case l.alone:
		r.Alone = true
	case session != nil:
		l.tied, r.Session = session, session.id
	case l.under != nil: // as it was
		r.Session = l.under.id
	}
	return r
}

// comeUnder takes in that a renewal was applied which named a session. With l.mu held.
func (l *Lease) comeUnder(now monotonic.Moment) {
	if s := l.tied; s != nil && !l.alone && now < s.trust.moment() {
		l.under = s
	}
}

// stayUnder takes back what comeUnder did if the session has ended meanwhile.
func (l *Lease) stayUnder(s *Lease) {
	l.client.keeper.remove(l)
	if s.trust.moment() == 0 {
		if tell := l.outlive(s); tell != nil {
			tell()
		}
	}
}

// goAlone makes the lease go by its own deadline, and leave its session with the next
// renewal. It reports false if it never was under one.
func (l *Lease) goAlone() bool {
	l.mu.Lock()
	tied := l.tied != nil
	if tied {
		l.alone, l.under = true, nil
		l.watchDeadline(l.client.clock.Until(l.ends()))
	}
	l.mu.Unlock()
	return tied
}

// outlive ends a lease whose session s has ended, or renews it if its own deadline is yet to
// come. What the observer and the logger are to be told is the caller's to call.
func (l *Lease) outlive(s *Lease) (tell func()) {
	c := l.client
	now := c.clock.Now()
	l.mu.Lock()
	if l.under != s || l.err != nil {
		l.mu.Unlock()
		return nil
	}
	over := l.over(now)
	l.under = nil
	if !over {
		l.watchDeadline(l.ends().Sub(now))
	}
	l.mu.Unlock()
	if over {
		return l.finish(errSession)
	}
	l.renewAt(now)
	return nil
}

// currentSession is the session under which leases come now. If there is none, the next one
// is begun in the background.
func (c *Client) currentSession() *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil || c.beginning || c.drained.Load() || c.clock.Now() < c.beginAt || !c.enterLocked() {
		return c.session
	}
	c.beginning = true
	go func() {
		defer c.background.Done()
		c.beginSession()
	}()
	return nil
}

func (c *Client) beginSession() {
	t := c.terms
	t.maxHold, t.maxStall = 0, 0 // of its leases, each by itself
	s := &Lease{client: c, id: c.newSessionID(), terms: &t, values: context.Background(), trust: new(trust), slot: slot{index: unscheduled}}
	sent := c.clock.Now()
	ctx, cancel := c.bound(s.values, sent.Add(min(t.ttl, maxCall)))
	left, err := c.sessions.BeginSession(ctx, store.Session{ID: s.id, Owner: c.owner, TTL: t.ttl})
	cancel()
	now := c.clock.Now()
	if err != nil {
		c.logger.Warn("mongolock: no session could be begun, leases are renewed one by one meanwhile", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.beginning = false; err != nil {
		c.beginAt = now.Add(t.ttl / 3)
		return
	}
	s.grant(sent, now, store.Grant{Left: left})
	if now >= s.deadline || c.closed {
		return // it runs out, and nothing is under it
	}
	s.trust.until.Store(int64(s.deadline))
	s.mu.Lock()
	s.watchDeadline(s.deadline.Sub(now))
	s.mu.Unlock()
	c.session = s
	c.keeper.add(s, s.slot.due)
}

// askToRenew sends the renewals of a batch. That of a session is a call of its own, and tells
// which of its leases were broken.
func (c *Client) askToRenew(ctx context.Context, batch []*Lease, request []store.Renewal) (answers []store.Renewed, tell []func()) {
	s := batch[0]
	if !s.isSession() {
		return c.store.Renew(ctx, request), nil
	}
	if c.isIdle(s) {
		s.end(ErrReleased)
		err := c.sessions.EndSession(ctx, s.id) // if that fails it runs out
		return []store.Renewed{{Err: err}}, []func(){func() { c.spawn(c.sweep) }}
	}
	answered := c.goAhead(s.terms.ttl)
	r, err := c.sessions.RenewSession(ctx, store.Session{ID: s.id, Owner: c.owner, TTL: s.terms.ttl})
	answered()
	if len(r.Broken) > 0 {
		for _, l := range c.unsettledLeases() {
			if reason, broken := r.Broken[l.id]; broken {
				tell = append(tell, func() { l.end(fmt.Errorf("%w: %s", ErrBroken, reason)) })
			}
		}
	}
	tell = append(tell, func() { c.spawn(c.sweep) })
	return []store.Renewed{{Left: r.Left, Err: err}}, tell
}

// isIdle reports whether no lease needs the session. One that asked for it, and found it
// being begun, comes under it with its next renewal, which is due when the session's first is.
func (c *Client) isIdle(s *Lease) bool {
	for _, l := range c.unsettledLeases() {
		l.mu.Lock()
		needs := l.under == s || l.tied == s || l.comes
		l.mu.Unlock()
		if needs {
			return false
		}
	}
	return true
}

// dropSession makes a session one that no lease comes under any more.
func (c *Client) dropSession(s *Lease) {
	c.mu.Lock()
	if c.session == s {
		c.session = nil
	}
	c.mu.Unlock()
}

// sessionEnds ends a session, once, with all leases under it that have no deadline of their
// own left. All of them have ended before anybody is told.
func (c *Client) sessionEnds(s *Lease, cause error) (tell func()) {
	c.dropSession(s)
	c.keeper.remove(s)
	var told []func()
	for _, l := range c.unsettledLeases() {
		if f := l.outlive(s); f != nil {
			told = append(told, f)
		}
	}
	return func() {
		if isLoss(cause) && len(told) > 0 {
			c.logger.Warn("mongolock: session lost", "leases", len(told), "cause", cause)
		}
		for _, f := range told {
			f()
		}
		if isLoss(cause) {
			time.AfterFunc(s.margin, func() { c.spawn(func() { c.giveUpSession(s) }) })
		}
	}
}

// giveUpSession frees what a lost session kept, after the margin that its holders have to
// stop: nobody has to wait for its end.
func (c *Client) giveUpSession(s *Lease) {
	ctx, cancel := c.within(context.Background(), maxCall)
	err := c.sessions.EndSession(ctx, s.id)
	cancel()
	if err == nil {
		c.sweep()
	}
}

// endSession ends the session of a client that is closed, whose leases are given back.
func (c *Client) endSession() {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s == nil || !s.end(ErrClosed) {
		return
	}
	ctx, cancel := c.within(context.Background(), maxCall)
	err := c.sessions.EndSession(ctx, s.id)
	cancel()
	if err == nil {
		c.sweep()
	} else if !errors.Is(err, ErrDisconnected) {
		c.logger.Info("mongolock: the session runs out by itself", "error", err)
	}
}
