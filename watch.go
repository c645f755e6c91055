package mongolock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

const (
	pollLeast = 50 * time.Millisecond
	pollMost  = time.Second
	feedIdle  = 30 * time.Second // a feed that nobody needs any more is closed after so long
	feedFirm  = 10 * time.Second // one that yields for less is the same trouble as before
)

// A watch learns that keys became free: by the store's feed while somebody waits,
// and by polling as long as there is none. All of it is protected by Client.mu.
type watch struct {
	client *Client
	feed   store.Feed    // nil: none, or refused for ever
	linger time.Duration // how long a feed that nobody needs stays open

	running bool // the feed's goroutine
	live    bool // it yields
	cancel  context.CancelFunc
	closing *time.Timer // ends an idle feed
	ending  bool        // closing is set

	poll     *time.Timer
	polling  bool // the timer is set, or a poll is under way
	interval time.Duration
	stopped  bool
}

// begin sees to it that somebody tells the waiters, of which one may be new. With
// c.mu held.
func (w *watch) begin(anew bool) {
	if w.stopped || w.client.drained.Load() {
		return
	}
	if w.ending {
		w.closing.Stop()
		w.ending = false
	}
	if w.feed != nil && !w.running && !w.client.closed {
		var ctx context.Context
		ctx, w.cancel = context.WithCancel(w.client.base)
		w.running = true
		w.client.background.Go(func() {
			w.listen(ctx)
		})
	}
	if !w.live {
		if anew || w.interval == 0 {
			w.interval = pollLeast
		}
		w.pollSoon()
	}
}

// idle plans the end of the feed when nobody waits any more. With c.mu held.
func (w *watch) idle() {
	if !w.running || w.client.waiting > 0 || w.stopped || w.ending {
		return
	}
	w.ending = true
	if w.closing == nil {
		w.closing = time.AfterFunc(w.linger, w.endIfIdle)
	} else {
		w.closing.Reset(w.linger)
	}
}

func (w *watch) endIfIdle() {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	switch {
	case w.stopped, !w.running, !w.ending: // or somebody waits again
	case w.needed():
		w.closing.Reset(w.linger)
	default:
		w.cancel()
		w.ending = false
	}
}

// needed reports whether anybody waits for another process. With c.mu held.
func (w *watch) needed() bool {
	for _, q := range w.client.queues {
		if q.head != nil && q.seen != nil {
			return true
		}
	}
	return false
}

func (w *watch) stop() {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	w.stopped = true
	if w.cancel != nil {
		w.cancel()
	}
	if w.closing != nil {
		w.closing.Stop()
	}
	if w.poll != nil {
		w.poll.Stop()
	}
}

// listen keeps the feed open until ctx ends or the store says that it has none.
func (w *watch) listen(ctx context.Context) {
	c := w.client
	pause, said := backoff.New(100*time.Millisecond, 5*time.Second), false
	for {
		begin := time.Now()
		heard, err := w.follow(ctx)
		if heard && time.Since(begin) >= feedFirm {
			pause, said = backoff.New(100*time.Millisecond, 5*time.Second), false
		}
		c.mu.Lock()
		w.live = false
		switch {
		case ctx.Err() != nil:
			w.running = false
			if w.needed() { // somebody came as it went
				w.begin(true)
			}
			c.mu.Unlock()
			return
		case errors.Is(err, errors.ErrUnsupported):
			w.running, w.feed = false, nil
			w.begin(true)
			c.mu.Unlock()
			c.logger.Info("mongolock: the store has no wake-ups: waiters poll", "error", err)
			return
		}
		w.begin(true) // poll until it is back
		c.mu.Unlock()
		if heard && !said {
			said = true
			c.logger.Warn("mongolock: wake-ups are interrupted: waiters poll meanwhile", "error", err)
		}
		timer := time.NewTimer(pause.Next())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// follow reads the feed until it ends.
func (w *watch) follow(ctx context.Context) (heard bool, err error) {
	c := w.client
	for n, err := range w.feed.Watch(ctx) {
		if err != nil {
			return heard, err
		}
		heard = true
		c.mu.Lock()
		switch {
		case n == store.Notice{}:
			w.live = true                                            // what was freed before went unheard: all look
			for _, key := range slices.Sorted(maps.Keys(c.queues)) { // in order, as a simulation can be run again
				c.queues[key].look()
			}
		case n.Topic == store.TopicLocks && n.Kind == store.KindFreed:
			c.wake(n.Key)
		}
		c.mu.Unlock()
	}
	return heard, nil
}

// pollSoon sets the poll's timer. With c.mu held.
func (w *watch) pollSoon() {
	if w.polling || w.stopped {
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

// look polls: one read for all keys that this process waits for.
func (w *watch) look() {
	c := w.client
	if !c.enter() {
		return
	}
	defer c.background.Done()
	c.mu.Lock()
	if w.live { // since the timer was set
		w.polling = false
		c.mu.Unlock()
		return
	}
	var keys []string
	for key, q := range c.queues {
		if q.holder == nil && q.head != nil && q.seen != nil && !q.head.asking {
			keys = append(keys, key)
		}
	}
	c.mu.Unlock()
	slices.Sort(keys)

	lively := false
	for len(keys) > 0 {
		n := min(len(keys), batchSize)
		ctx := c.within(context.Background(), releaseBound)
		all, _ := c.store.Look(ctx, keys[:n]) // a fault here is one less hint; the head's own look will tell
		ctx.end()
		lively = w.looked(all) || lively
		keys = keys[n:]
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	w.polling = false
	if w.live || c.waiting == 0 {
		return
	}
	w.interval = min(2*w.interval, pollMost)
	if lively {
		w.interval = pollLeast
	}
	w.pollSoon()
}

// looked wakes the heads of keys that are free, and moves the look of the others
// to when their holders run out. A key that changed hands lately is looked at
// often: its other waiters leave it alone for no more than shyTime. Where the
// record was made anew the word of those who wait went with the old one, so the
// head asks to leave it again.
func (w *watch) looked(all []store.Status) (lively bool) {
	c := w.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range all {
		lively = c.saw(&all[i]) || lively
	}
	return lively
}

// saw is looked for one key, with c.mu held. And what is in another's hands was left
// to others for long enough.
func (c *Client) saw(s *store.Status) (lively bool) {
	q := c.queues[s.Key]
	switch {
	case q == nil || q.head == nil || q.head.asking:
		return false
	case open(s, q.head.terms):
		c.wake(s.Key)
		return true
	}
	now := c.clock.Now()
	anew := !q.sees(*s)
	if q.firm++; anew {
		q.firm, q.moved = 0, now
	}
	if anew && !s.Wanted || amongSharers(s, q.head.terms) && !s.Reserved() {
		q.look()
	}
	if until, shy := c.shy[s.Key]; shy && now < until && q.sharers == 0 { // else it may be our own
		delete(c.shy, s.Key)
		q.freed = false
		q.look()
	}
	q.seen = s
	c.makeSure(q, now)
	q.lookAt = min(now.Add(drifted(opens(s, q.head.terms))), q.word)
	return q.moved != 0 && now.Sub(q.moved) < pollMost
}

// read looks at one key, for its head.
func (c *Client) read(key string) {
	ctx := c.within(context.Background(), releaseBound)
	all, err := c.store.Look(ctx, []string{key})
	ctx.end()
	c.watch.looked(all)
	if err != nil { // one less hint
		c.mu.Lock()
		defer c.mu.Unlock()
		if q := c.queues[key]; q != nil && q.head != nil {
			c.makeSure(q, c.clock.Now())
		}
	}
}
