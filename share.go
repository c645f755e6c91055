package mongolock

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock/internal/observe"
	"github.com/mongolock/mongolock/store"
)

// Sharers queue and ask the store like any other waiter. Two things differ: under which
// condition a claim makes sense, and that the word of a waiting writer keeps sharers out. A
// writer is a waiter that wants the key alone.

// open reports whether a claim on these terms makes sense, given the status seen last.
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
		return true // the claim's refusal then says what does not match
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

// opens returns how long it takes until the key is open if no holder renews or leaves.
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
			first = min(first, s.LeftOf(h))
		}
	}
	return first
}

// amongSharers reports whether these terms are a writer's and the key is shared by others.
func amongSharers(s *store.Status, t *terms) bool {
	return !t.shares() && s.Mode != store.Exclusive && !s.Free()
}

// wordOf returns how long a word that was left for want is effective. A writer's word keeps
// sharers out for only a part of that time, and must be left again within it.
func wordOf(s *store.Status, t *terms, want time.Duration) time.Duration {
	if amongSharers(s, t) {
		return reserve(t, want)
	}
	return want
}

func reserve(t *terms, want time.Duration) time.Duration {
	return store.Claim{Ref: store.Ref{Mode: t.mode}, TTL: t.ttl, Want: want}.Reserve()
}

// turnIsOver reports whether this client's waiters must leave the key to other processes, which
// have left word for it, now that this holding is given back. Readers need not: the other
// processes wait as writers, and the writers' word keeps readers out. A client may keep some
// permits for its own waiters; otherwise each permit would lie idle for a while because of
// them.
func (h *holding) turnIsOver() bool {
	switch h.terms.mode {
	case store.Exclusive:
		return true
	case store.Shared:
		return false
	}
	c := h.client
	c.mu.Lock()
	defer c.mu.Unlock()
	q, now := h.queue, c.clock.Now()
	if now.Sub(q.streak.since) > streakPause {
		q.streak = streak{}
	}
	s, on := q.streak.on(now)
	if q.streak = s; !on {
		q.streak = streak{}
	}
	return !on
}

// wordLeft returns the end of the word that w leaves behind as it goes without the key. It is
// zero unless that word keeps sharers out for no purpose.
func (q *queue) wordLeft(w *waiter) (until time.Time) {
	seen := q.plan.seen
	if w.terms.shares() || w.asking || seen == nil { // a claim that is under way leaves another word: see takeBackLate
		return time.Time{}
	}
	for other := q.head; other != nil; other = other.next {
		if other != w && !other.terms.shares() {
			return time.Time{} // another writer needs the word too
		}
	}
	if own := w.ownWord(seen); own.After(q.plan.reserved) || seen.Mode == store.Exclusive {
		return own
	}
	return q.plan.reserved // a late reply to a read may show the word before ours
}

// ownWord returns the end of the writer's word in s. It is zero if w is not a writer, if the
// word lasts too long to be w's, or if it keeps out no sharer.
func (w *waiter) ownWord(s *store.Status) time.Time {
	most := reserve(w.terms, wordLeast) + time.Second
	if w.terms.shares() || s.Mode == store.Exclusive || s.ExclusiveWantedUntil.Sub(s.Now) > most {
		return time.Time{}
	}
	return s.ExclusiveWantedUntil
}

// takeBack removes a word that no waiter needs any more, and wakes those that it kept out. If
// that fails, the word runs out.
func (c *Client) takeBack(key string, until time.Time) {
	if until.IsZero() {
		return
	}
	words := store.WithdrawerOf(c.store)
	if words == nil {
		return
	}
	c.background.Go(func() {
		ctx, cancel := c.background.Within(context.Background(), releaseBound)
		defer cancel()
		c.calls.Add(observe.Withdraw)
		if err := words.Withdraw(ctx, key, until); err != nil {
			c.logger.Debug("mongolock: a word was not taken back; it runs out by itself", "key", key, "error", err)
			return
		}
		c.freed(key)
	})
}

// takeBackLate takes back the word of a claim whose waiter has left meanwhile.
func (c *Client) takeBackLate(w *waiter, err error) {
	var held *store.HeldError
	if w.queue == nil || !errors.As(err, &held) { // a TryAcquire leaves no word
		return
	}
	c.takeBack(w.key, w.ownWord(&held.Status))
}
