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

// A client's session is a Lease without a key: the keeper renews it as it renews leases, with
// the same deadline, bounds and retries. Leases under it are not renewed. Such a lease is
// trusted for two reasons, its own deadline and the session's, and ends when both have passed.
// A session that has ended stays ended: the next one has another ID.

// A trust says until when a session may be trusted; it is 0 once the session has ended.
type trust struct{ until atomic.Int64 }

func (t *trust) moment() monotonic.Moment { return monotonic.Moment(t.until.Load()) }

func (l *Lease) isSession() bool { return l.trust != nil }

// trusted returns until when the lease may be trusted, by its own deadline or its session's.
// Call it with l.mu held.
func (l *Lease) trusted() monotonic.Moment {
	if l.maxEnd != 0 {
		return min(l.storeTrusted(), l.maxEnd)
	}
	return l.storeTrusted()
}

// storeTrusted is trusted without regard to MaxHold: until then the store certainly has the
// holder. Call it with l.mu held.
func (l *Lease) storeTrusted() monotonic.Moment {
	if l.under == nil {
		return l.deadline
	}
	return max(l.deadline, l.under.trust.moment())
}

// keptBySession reports whether nothing but the end of its session ends the lease. Call it with
// l.mu held.
func (l *Lease) keptBySession() bool { return l.under != nil && l.maxEnd == 0 && l.stallAt == 0 }

// honouredUntil returns until when the store may honour the lease. A late renewal may have put
// it under a session. Call it with l.mu held.
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

// renewal returns the request to renew the lease, and to put it under the client's session if
// there is one.
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
	case l.under != nil: // stay under it
		r.Session = l.under.id
	}
	return r
}

// comeUnder puts the lease under the session that an applied renewal named. Call it with l.mu
// held.
func (l *Lease) comeUnder(now monotonic.Moment) {
	if s := l.tied; s != nil && !l.alone && now < s.trust.moment() {
		l.under = s
	}
}

// stayUnder undoes comeUnder if the session has ended meanwhile.
func (l *Lease) stayUnder(s *Lease) {
	l.client.keeper.remove(l)
	if s.trust.moment() == 0 {
		if tell := l.outlive(s); tell != nil {
			tell()
		}
	}
}

// goAlone takes the lease out of its session: from now on its own deadline counts, and the next
// renewal tells the store. It reports false if the lease never was under a session.
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
// come. The caller calls tell, which tells the observer and the logger.
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

// currentSession returns the session under which leases come now. If there is none, it begins
// the next one in the background.
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
	t.maxHold, t.maxStall = 0, 0 // they limit each lease, not the session
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
	if now >= s.deadline || c.background.Closed() {
		return // the session runs out, and no lease is under it
	}
	s.trust.until.Store(int64(s.deadline))
	s.mu.Lock()
	s.watchDeadline(s.deadline.Sub(now))
	s.mu.Unlock()
	c.session = s
	c.keeper.add(s, s.slot.due)
}

// askToRenew sends the renewals of a batch. A session's renewal is a call of its own, and tells
// which of its leases were broken.
func (c *Client) askToRenew(ctx context.Context, batch []*Lease, request []store.Renewal) (answers []store.Renewed, tell []func()) {
	s := batch[0]
	if !s.isSession() {
		return c.store.Renew(ctx, request), nil
	}
	if c.isIdle(s) {
		s.end(ErrReleased)
		err := c.sessions.EndSession(ctx, s.id) // if that fails, the session runs out
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

// isIdle reports whether no lease needs the session. A lease that asked for it while it was
// being begun comes under it with its next renewal, which is due when the session's first is.
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

// dropSession makes sure that no more leases come under a session.
func (c *Client) dropSession(s *Lease) {
	c.mu.Lock()
	if c.session == s {
		c.session = nil
	}
	c.mu.Unlock()
}

// sessionEnds ends a session once, with all leases under it whose own deadlines have passed.
// All of them have ended before tell tells the observer of any.
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

// giveUpSession frees the keys of a lost session, after the margin that their holders have to
// stop. So waiters need not wait until the session runs out.
func (c *Client) giveUpSession(s *Lease) {
	ctx, cancel := c.within(context.Background(), maxCall)
	err := c.sessions.EndSession(ctx, s.id)
	cancel()
	if err == nil {
		c.sweep()
	}
}

// endSession ends the session of a closed client, whose leases have been given back.
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
