package mongolock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/store"
)

// Keys are polled at these intervals: often at first, and while they change hands.
const (
	pollLeast = 50 * time.Millisecond
	pollMost  = time.Second
)

// A watch learns when other processes free keys: from the store's feed, and by polling while
// the feed is not live. All but feed is protected by Client.mu.
type watch struct {
	client *Client
	feed   *follow.Follower // a queue joins it with its first refusal, and leaves it with its last waiter

	poll     *time.Timer
	polling  bool // the timer is set, or a poll is under way
	interval time.Duration
	stopped  bool
	old      bool // the feed is reopened only because it is old: one look is enough, when it is open
}

// newWatch makes the watch of c on feed, which may be nil.
func newWatch(c *Client, feed store.Feed) *watch {
	w := &watch{client: c}
	w.feed = follow.New(c.background.Base(), feed, w.heard, w.lost)
	return w
}

// begin makes sure that a head which was refused learns when its key is free, until end is
// called. Call it with c.mu held.
func (w *watch) begin(p *plan) {
	first := !p.watched
	if first {
		p.watched = true
		w.feed.Join()
		w.client.watchSleep()
	}
	w.pollUntilLive(first)
}

// end is called when the last waiter of a queue leaves. Call it with c.mu held.
func (w *watch) end(p *plan) {
	if p.watched {
		w.feed.Leave()
	}
}

// pollUntilLive polls, unless the feed is live. Call it with c.mu held.
func (w *watch) pollUntilLive(often bool) {
	if w.feed.Live() {
		return
	}
	if often || w.interval == 0 {
		w.interval = pollLeast
	}
	w.pollSoon()
}

// stop ends the feed and the polls. Call it without c.mu, which the feed's callbacks take.
func (w *watch) stop() {
	w.client.mu.Lock()
	w.stopped = true
	if w.poll != nil {
		w.poll.Stop()
	}
	w.client.mu.Unlock()
	w.feed.Close()
}

// heard handles a notice of the feed.
func (w *watch) heard(n store.Notice) {
	c := w.client
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case n == store.Notice{}: // the feed is live, but earlier releases and waiters were missed
		c.dismissAll()
		sure := c.anySure()
		if sure { // the holders seen now may have announced their release already, and leave in a moment
			time.AfterFunc(besideStill, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				w.lookAtAllKeys()
			})
		}
		if !w.old || !sure {
			w.lookAtAllKeys()
		}
		w.old = false
	case n.Topic == store.TopicLocks && n.Kind == store.KindFreed:
		c.wake(n.Key)
	case n.Topic == store.TopicLocks && n.Kind == store.KindWanted:
		c.asked(n.Key)
	}
}

// lost makes the waiters poll until the feed is back.
func (w *watch) lost(loss follow.Loss) {
	w.client.mu.Lock()
	w.client.dismissAll()
	w.old = loss.Err == nil
	w.pollUntilLive(true)
	w.client.mu.Unlock()
	switch {
	case loss.Final:
		w.client.logger.Info("mongolock: the store has no wake-ups: waiters poll", "error", loss.Err)
	case loss.News:
		w.client.logger.Warn("mongolock: wake-ups are interrupted: waiters poll meanwhile", "error", loss.Err)
	}
}

// pollSoon sets the timer of the next poll. Call it with c.mu held.
func (w *watch) pollSoon() {
	if w.polling || w.stopped || w.client.drained.Load() {
		return
	}
	w.polling = true
	d := backoff.Jitter(w.interval)
	if w.poll == nil {
		w.poll = time.AfterFunc(d, w.look)
	} else {
		w.poll.Reset(d)
	}
}

// look polls: one read for all keys that this client waits for.
func (w *watch) look() {
	c := w.client
	if !c.enter() {
		return
	}
	defer c.background.Done()
	c.mu.Lock()
	if w.feed.Live() { // it became live after the timer was set
		w.polling = false
		c.mu.Unlock()
		return
	}
	keys := w.waitedFor()
	c.mu.Unlock()
	often, err := w.lookAtAll(keys) // if it fails, the heads still ask when their plans say so

	c.mu.Lock()
	defer c.mu.Unlock()
	w.polling = false
	if errors.Is(err, ErrDisconnected) { // for good: they are told so
		for _, q := range c.queues {
			q.look()
		}
	}
	if w.feed.Live() || c.waiting == 0 {
		return
	}
	w.interval = min(2*w.interval, pollMost)
	if often {
		w.interval = pollLeast
	}
	w.pollSoon()
}

// lookAtAllKeys reads all keys that this client waits for, in the background. Call it with c.mu
// held.
func (w *watch) lookAtAllKeys() {
	for _, q := range w.client.queues {
		if q.head != nil && q.head.asking {
			q.wakeUp = max(q.wakeUp, lookAgain) // a read under way may be older
		}
	}
	if keys := w.waitedFor(); len(keys) > 0 && w.client.enterLocked() {
		go func() {
			defer w.client.background.Done()
			if _, err := w.lookAtAll(keys); err != nil {
				w.askForAll(keys)
			}
		}()
	}
}

// waitedFor returns the keys whose heads were refused and are not asking, in order, so that a
// simulation can be repeated. Call it with c.mu held.
func (w *watch) waitedFor() (keys []string) {
	for key, q := range w.client.queues {
		if q.holder == nil && q.head != nil && q.plan.seen != nil && !q.head.asking {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// askForAll makes the heads of keys ask, because the keys could not be read.
func (w *watch) askForAll(keys []string) {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	for _, key := range keys {
		if q := w.client.queues[key]; q != nil {
			q.look()
		}
	}
}

// lookAtAll reads keys, many in one read, because thousands of heads that asked at once would
// overload the store. It reports whether one of the keys is worth polling often.
func (w *watch) lookAtAll(keys []string) (often bool, err error) {
	for batch := range slices.Chunk(keys, batchSize) {
		var all []store.Status
		if all, err = w.readKeys(batch); err != nil {
			return often, err
		}
		often = w.looked(all) || often
	}
	return often, nil
}

func (w *watch) readKeys(keys []string) ([]store.Status, error) {
	ctx, cancel := w.client.within(context.Background(), releaseBound)
	defer cancel()
	return w.client.store.Look(ctx, keys)
}

// read reads one key for its head, while the head sleeps.
func (c *Client) read(key string) {
	all, err := c.watch.readKeys([]string{key})
	c.watch.looked(all)
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[key]; q != nil && q.head != nil {
		c.replan(q, readFailed, nil, 0)
	}
}

// looked handles the reply to a read of several keys, and reports whether one of them is worth
// polling often.
func (w *watch) looked(all []store.Status) (often bool) {
	c := w.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range all {
		often = c.saw(&all[i]) || often
	}
	return often
}

// saw handles what a read showed of one key. It wakes the head if the key is free, and makes a
// new plan if it is not. A key that changed hands lately is worth polling often: the waiters of
// its last holder's process leave it alone for a moment only. Call it with c.mu held.
func (c *Client) saw(s *store.Status) (often bool) {
	q := c.queues[s.Key]
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
	if until, ok := c.leftToOthers[s.Key]; ok && now < until && q.sharers == 0 { // otherwise the holder may be this client
		delete(c.leftToOthers, s.Key) // another process has the key now
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
