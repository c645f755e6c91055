package mongolock

import "github.com/mongolock/mongolock/store"

// A membership says which session keeps a holding. It is protected by the holding's mu.
type membership struct {
	under *session // the one that keeps it
	named *session // the one that a renewal named, whether or not it was applied
	joins bool     // the next renewal puts it into a session
	alone bool     // it leaves its session, for Detach
}

// renewal returns the request to renew the holding, and to put it into the client's session if
// there is one.
func (h *holding) renewal() store.Renewal {
	r := store.Renewal{Ref: h.ref, TTL: h.terms.ttl}
	c := h.client
	if c.sessions == nil {
		return r
	}
	var s *session
	joins := !h.terms.noRenewal && h.terms.ttl >= c.ttl && h.term.Margin() <= c.marginFor(c.ttl)
	if joins {
		s = c.sessions.join()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &h.member
	m.joins = joins && !m.alone
	switch {
	case m.alone:
		r.Alone = true
	case s != nil:
		m.named, r.Session = s, s.id
	case m.under != nil: // stay in it
		r.Session = m.under.id
	}
	return r
}

// leaveSession takes the holding out of its session: from now on its own deadline counts, and
// the next renewal tells the store. It reports false if the holding never was in a session.
func (h *holding) leaveSession() bool {
	now := h.client.clock.Now()
	h.mu.Lock()
	if h.member.named == nil {
		h.mu.Unlock()
		return false
	}
	h.member.alone, h.member.under = true, nil
	h.watchDeadline(h.ends().Sub(now))
	h.mu.Unlock()
	h.client.keeper.Plan(h, now) // in case the caller's renewal fails
	return true
}

// afterSession ends a holding whose session s has ended, or renews it if its own deadline is
// yet to come. The caller calls tell, which tells the observer and the logger.
func (h *holding) afterSession(s *session) (tell func()) {
	c := h.client
	now := c.clock.Now()
	h.mu.Lock()
	if h.member.under != s || h.err != nil {
		h.mu.Unlock()
		return nil
	}
	over := h.over(now)
	h.member.under = nil
	if !over {
		h.watchDeadline(h.ends().Sub(now))
	}
	h.mu.Unlock()
	if over {
		return h.finish(errSession)
	}
	c.keeper.Plan(h, now)
	return nil
}
