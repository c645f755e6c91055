package mongolock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/keeper"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/observe"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/store"
)

// sessions are those of a client, one after the other.
type sessions struct {
	client *Client
	store  store.Sessions

	mu        sync.Mutex
	current   *session         // nil: none
	beginning bool             // a session is being begun
	beginAt   monotonic.Moment // the next session begins no earlier, after one that failed
	closed    bool             // no other session begins
	sweeps    int              // one is under way, and one that follows it
}

// join returns the session that holdings join now. If there is none, it begins the next one in
// the background.
func (all *sessions) join() *session {
	c := all.client
	all.mu.Lock()
	s := all.current
	begin := s == nil && !all.beginning && !all.closed && !c.queues.drained.Load() && c.clock.Now() >= all.beginAt
	all.beginning = all.beginning || begin
	all.mu.Unlock()
	if begin && !c.background.Go(all.begin) {
		all.mu.Lock()
		all.beginning = false
		all.mu.Unlock()
	}
	return s
}

func (all *sessions) begin() {
	c := all.client
	s := &session{of: all, id: c.newID(), Slot: keeper.Slot{TTL: c.ttl, First: true}}
	sent := c.clock.Now()
	ctx, cancel := c.background.Bound(context.Background(), sent.Add(min(c.ttl, maxCall)))
	c.calls.Add(observe.Session)
	left, err := all.store.BeginSession(ctx, s.says())
	cancel()
	now := c.clock.Now()
	if err != nil {
		c.logger.Warn("mongolock: could not begin a session; renewing leases one by one until the next attempt", "error", err)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.beginning = false; err != nil {
		all.beginAt = now.Add(c.ttl / 3)
		return
	}
	var due monotonic.Moment
	s.term, due = term.Granted(c.ttl, c.marginFor(c.ttl), sent, now, left, true)
	if s.term.Over(now) || all.closed {
		return // the session runs out, and no holding is in it
	}
	s.until.Store(int64(s.trusted()))
	s.timer = time.AfterFunc(s.trusted().Sub(now), s.expire)
	all.current = s
	c.keeper.Add(s, due)
}

// remove ends the session in the store, and removes what it left.
func (all *sessions) remove(s *session) error {
	c := all.client
	ctx, cancel := c.background.Within(context.Background(), maxCall)
	c.calls.Add(observe.Session)
	err := all.store.EndSession(ctx, s.id)
	cancel()
	if err == nil {
		all.sweep()
	}
	return err
}

// afterSleep ends the session if it ran out.
func (all *sessions) afterSleep() {
	all.mu.Lock()
	s := all.current
	all.mu.Unlock()
	if s != nil {
		s.expire()
	}
}

// sweep removes what dead sessions left, of this client and of others, as far as the store has
// met them. If a sweep is under way, another one follows it.
func (all *sessions) sweep() {
	c := all.client
	all.mu.Lock()
	mine := all.sweeps == 0
	all.sweeps = min(all.sweeps+1, 2)
	all.mu.Unlock()
	for mine {
		c.keeper.Yield()
		ctx, cancel := c.background.Within(context.Background(), maxCall)
		c.calls.Add(observe.Sweep)
		freed, err := all.store.Sweep(ctx)
		cancel()
		c.freed(freed...)
		if err != nil && c.background.Base().Err() == nil {
			c.logger.Info("mongolock: what dead sessions left is not removed yet", "error", err)
		}
		all.mu.Lock()
		all.sweeps--
		mine = all.sweeps > 0
		all.mu.Unlock()
	}
}

// close ends the session of a closed client, whose leases have been given back.
func (all *sessions) close() {
	all.mu.Lock()
	all.closed = true
	s := all.current
	all.mu.Unlock()
	if s == nil || !s.end(ErrClosed) {
		return
	}
	if err := all.remove(s); err != nil && !errors.Is(err, ErrDisconnected) {
		all.client.logger.Info("mongolock: the session runs out by itself", "error", err)
	}
}

// broken ends the leases that an operator broke, by the reasons for their IDs.
func (all *sessions) broken(reasons map[string]string) {
	if len(reasons) == 0 {
		return
	}
	for _, h := range all.client.queues.unsettled() {
		if reason, is := reasons[h.ref.ID]; is {
			h.end(fmt.Errorf("%w: %s", ErrBroken, reason))
		}
	}
}
