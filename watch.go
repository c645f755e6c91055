package mongolock

import (
	"slices"
	"sync/atomic"

	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// heads are the heads of a client's queues, as package wake sees them: what it hears or reads of
// their keys. Its methods take Client.mu.
type heads struct{ *Client }

// Waiting reports whether there is a waiter.
func (c heads) Waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
}

// Keys returns the keys whose heads were refused and are not asking, in order, so that a
// simulation can be repeated. With again, a head that is asking asks once more.
func (c heads) Keys(again bool) (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, q := range c.queues.All {
		switch {
		case q.head == nil:
		case q.head.asking && again:
			q.wakeUp = max(q.wakeUp, lookAgain)
		case q.holder == nil && q.plan.seen != nil && !q.head.asking:
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Read handles what a read showed, and reports whether a key is worth polling often.
func (c heads) Read(all []store.Status) (often bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range all {
		often = c.saw(&all[i]) || often
	}
	return often
}

// Ask makes the heads of keys ask, because the keys could not be read.
func (c heads) Ask(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if q := c.queues.All[key]; q != nil {
			q.look()
		}
	}
}

// Freed makes the head of a key ask.
func (c heads) Freed(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake(key)
}

// Wanted frees a key that is kept, because another process waits for it.
func (c heads) Wanted(key string) {
	c.asks.of(key).Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues.All[key]; q != nil && q.holder != nil && q.holder.heardWord() && !q.holder.leaving {
		c.dismiss(q.holder)
	}
}

// Deaf frees all keys that are kept.
func (c heads) Deaf() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismissAll()
}

// Sure reports whether a head is sure of its word.
func (c heads) Sure() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.anySure()
}

// watchFor makes sure that a head which was refused learns when its key is free, until its queue
// is empty. Call it with c.mu held.
func (c *Client) watchFor(p *plan) {
	first := !p.watched
	if first {
		p.watched = true
		c.watch.Join()
		c.watchSleep()
	}
	c.watch.Refused(first)
}

// read reads one key for its head, while the head sleeps.
func (c *Client) read(key string) {
	all, err := c.watch.Look(key)
	heads{c}.Read(all)
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues.All[key]; q != nil && q.head != nil {
		c.replan(q, readFailed, nil, 0)
	}
}

// freed tells waiters that keys may be free: this client's waiters, and those of other
// processes by the feed.
func (c *Client) freed(keys ...string) {
	c.mu.Lock()
	for _, key := range keys {
		c.wake(key)
	}
	c.mu.Unlock()
	c.watch.Announce(keys...)
}

// Feed returns the store's feed, which carries notices between processes, or nil if the store
// has none. The client sends and hears its wake-ups by itself: Feed is for packages with topics
// of their own, such as leader. Under WithoutFeed it sends notices and hears none.
func (c *Client) Feed() store.Feed {
	feed := store.FeedOf(c.store)
	if feed != nil && c.noFeed {
		return wake.SendOnly{Feed: feed}
	}
	return feed
}

// saw handles what a read showed of one key. It wakes the head if the key is free, and makes a
// new plan if it is not. A key that changed hands lately is worth polling often: the waiters of
// its last holder's process leave it alone for a moment only. Call it with c.mu held.
func (c *Client) saw(s *store.Status) (often bool) {
	q := c.queues.All[s.Key]
	switch {
	case q == nil || q.head == nil || q.head.asking:
		return false
	case q.holder != nil:
		q.holder.checkIn(s)
		return false
	case open(s, q.head.terms):
		c.wake(s.Key)
		return true
	}
	wordIsGone := !q.plan.shows(s) && !s.Wanted // it went with the record in which it was left
	if wordIsGone || amongSharers(s, q.head.terms) && !s.Reserved() {
		q.look() // a claim leaves the word again
	}
	now := c.clock.Now()
	if until, ok := c.leftToOthers.All[s.Key]; ok && now < until && q.sharers == 0 { // otherwise the holder may be this client
		delete(c.leftToOthers.All, s.Key) // another process has the key now
		q.wakeUp = lookAgain
		q.head.poke()
	}
	c.replan(q, keyRead, s, 0)
	return q.plan.moves(now)
}

// An askCount counts how often others asked for keys, several keys in one counter. A notice may
// come before the reply to the claim whose holder it asks.
type askCount [64]atomic.Uint32

func (a *askCount) of(key string) *atomic.Uint32 {
	hash := uint32(2166136261) // FNV-1a
	for i := range len(key) {
		hash = (hash ^ uint32(key[i])) * 16777619
	}
	return &a[hash%uint32(len(a))]
}
