package mongolock

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/store"
)

// Who shares a key asks the store like everybody, one after the other as they
// stand in line; what is different for them is when asking is worth while, and that
// somebody who waits to have the key alone keeps them out by his word.

// open reports whether a claim on these terms is worth making, by what was seen.
func open(s *store.Status, t *terms) bool {
	switch {
	case !t.shares():
		return s.Free()
	case s.Reserved():
		return false
	case s.Free():
		return true
	case s.Mode == store.Exclusive:
		return false
	case s.Mode != t.mode || s.Limit != t.limit:
		return true // to be told so
	}
	return s.Mode == store.Shared || live(s) < s.Limit
}

func live(s *store.Status) (n int) {
	for _, h := range s.Holders {
		if s.Live(h) {
			n++
		}
	}
	return n
}

// opens is how long it takes until open, if nobody renews and nobody leaves.
func opens(s *store.Status, t *terms) time.Duration {
	switch {
	case t.shares() && s.Reserved():
		return s.ExclusiveWantedUntil.Sub(s.Now)
	case t.mode != store.Permits || s.Mode != store.Permits:
		return s.Left()
	}
	first := s.Left()
	for _, h := range s.Holders {
		if s.Live(h) {
			first = min(first, h.ExpireAt.Sub(s.Now))
		}
	}
	return first
}

// amongSharers reports whether somebody wants alone what others share.
func amongSharers(s *store.Status, t *terms) bool {
	return !t.shares() && s.Mode != store.Exclusive && !s.Free()
}

// wordOf is how long a word does its work. That of a writer keeps readers out for
// a part of it only, and has to be left anew within that time.
func wordOf(s *store.Status, t *terms, want time.Duration) time.Duration {
	if amongSharers(s, t) {
		return reserve(t, want)
	}
	return want
}

func reserve(t *terms, want time.Duration) time.Duration {
	return store.Claim{Ref: store.Ref{Mode: t.mode}, TTL: t.ttl, Want: want}.Reserve()
}

// turnIsOver reports whether this process's waiters are to leave a key to others,
// after a lease was given back that they wait for. Readers never: those others want
// the key alone, and their word keeps readers out. Of permits a process may give
// some to itself, or each would lie idle for a while because of its own waiters.
func (l *Lease) turnIsOver() bool {
	if knob.Greedy {
		return false
	}
	switch l.terms.mode {
	case store.Exclusive:
		return true
	case store.Shared:
		return false
	}
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.turns) >= 64 { // swept as it grows, so that it does not
		for key, s := range c.turns {
			if c.clock.Since(s.since) > time.Second {
				delete(c.turns, key)
			}
		}
	}
	s := c.turns[l.key]
	if c.clock.Since(s.since) > time.Second {
		s = streak{}
	}
	s, on := s.on(c.clock.Now())
	if on {
		c.turns[l.key] = s
	} else {
		delete(c.turns, l.key)
	}
	return !on
}

// wordLeft is the end of the word that w leaves behind as it goes without the key,
// if that keeps others out for nothing. With c.mu held.
func (c *Client) wordLeft(w *waiter) (until time.Time) {
	q := w.queue
	if w.terms.shares() || w.asking || q.seen == nil { // its claim, under way, leaves another
		return time.Time{}
	}
	for other := q.head; other != nil; other = other.next {
		if other != w && !other.terms.shares() {
			return time.Time{} // it is theirs as well
		}
	}
	if own := w.ownWord(q.seen); own.After(q.reserved) || q.seen.Mode == store.Exclusive {
		return own
	}
	return q.reserved // a look that was answered late may show the word before ours
}

// ownWord is the end of the writer's word in s, unless it must be somebody else's
// as it lasts too long, or stands in nobody's way.
func (w *waiter) ownWord(s *store.Status) time.Time {
	most := reserve(w.terms, wordLeast) + time.Second
	if s.Mode == store.Exclusive || s.ExclusiveWantedUntil.Sub(s.Now) > most {
		return time.Time{}
	}
	return s.ExclusiveWantedUntil
}

// takeBack removes a word that nobody means any more, and wakes those it kept out.
// If it stays it runs out by itself.
func (c *Client) takeBack(key string, until time.Time) {
	if until.IsZero() {
		return
	}
	words := store.WithdrawerOf(c.store)
	if words == nil {
		return
	}
	c.spawn(func() {
		ctx := c.within(context.Background(), releaseBound)
		defer ctx.end()
		if err := words.Withdraw(ctx, key, until); err != nil {
			c.logger.Debug("mongolock: a word was not taken back; it runs out by itself", "key", key, "error", err)
			return
		}
		c.freed(key)
	})
}

// takeBackLate is takeBack for the word of a claim whose waiter left meanwhile.
func (c *Client) takeBackLate(w *waiter, err error) {
	var held *store.HeldError
	if w.queue == nil || w.terms.shares() || !errors.As(err, &held) { // a try leaves none
		return
	}
	c.takeBack(w.key, w.ownWord(&held.Status))
}
