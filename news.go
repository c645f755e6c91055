package mongolock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/observe"
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
// simulation can be repeated. With again, a head that is asking asks once more, and keys are among
// them that somebody may wait for without having told their holder here.
func (c heads) Keys(again bool) (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, q := range c.queues.All {
		switch {
		case q.head == nil:
			if again && q.holder != nil && q.holder.terms.yields {
				keys = append(keys, key)
			}
		case q.head.asking && again:
			q.view.Look()
		case q.holder == nil && q.view.Seen != nil && !q.head.asking:
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Read handles what a read showed, and reports whether a key is worth polling often: one that has
// changed since it was last seen.
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

// Offered says that it is the turn of a place of this client; without a place, that of its head.
func (c heads) Offered(key string, p store.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch q := c.queueOf(key); {
	case q.head != nil && (p == "" || p == q.view.Place):
		q.view.HeardOffer(c.clock.Now())
		q.head.poke()
	case p == "":
		q.offeredAt = c.clock.Now()
	case p != q.served: // nobody waits with it any more
		c.places.Offered(key, p)
	}
}

// Next says that a place of this client comes after those to whom the key is offered.
func (c heads) Next(key string, p store.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues.All[key]; q != nil && q.head != nil && p == q.view.Place {
		q.view.HeardNext(c.clock.Now())
		q.head.poke()
	}
}

// watchFor makes sure that a head which was refused learns when it is its turn, until its queue
// is empty. Call it with c.mu held.
func (c *Client) watchFor(q *queue) {
	first := !q.watched
	if first {
		q.watched = true
		c.watch.Join()
		c.watchSleep()
	}
	c.watch.Refused(first)
}

// read reads one key for its head, while the head sleeps.
func (c *Client) read(key string) {
	if all, err := c.watch.Look(key); err == nil {
		heads{c}.Read(all)
	}
}

// saw handles what a read showed of one key, and reports whether that has changed. Call it with
// c.mu held.
func (c *Client) saw(s *store.Status) (changed bool) {
	q := c.queues.All[s.Key]
	if q != nil && q.holder != nil && q.holder.terms.yields && len(s.Waiting("", "")) > 0 {
		q.holder.heardWaiter()
	}
	switch {
	case q == nil || q.head == nil || q.head.asking:
		return false
	case q.holder != nil:
		q.holder.checkIn(s)
		return false
	}
	last := q.view.Seen
	q.view.Read(s, c.clock.Now())
	q.head.poke()
	return last == nil || !line.SameHolders(last, s)
}

// besideStill is how long a release may take for which an announcement made beside it is enough.
const besideStill = 250 * time.Millisecond

// tell says whose turn it is, after a change of a key: to those places of the line to whom it is
// offered, n of them, and to the one behind.
func (c *Client) tell(key string, line []store.Place, n int) {
	c.watch.Announce(offers(key, line, n)...)
}

func offers(key string, line []store.Place, n int) (all []store.Notice) {
	all = notices(store.KindOffered, key, line[:n])
	if n > 0 && n < len(line) {
		all = append(all, notices(store.KindNext, key, line[n:n+1])...)
	}
	return all
}

// notices returns one for each place whose process hears any.
func notices(kind, key string, places []store.Place) (all []store.Notice) {
	for _, p := range places {
		if p.Address() != "" {
			all = append(all, store.Notice{Topic: store.TopicLocks, Key: key, Kind: kind, To: p.Address(), Place: p})
		}
	}
	return all
}

// offer is one notice that it is the turn of a place.
func offer(key string, p store.Place) []store.Notice { return offers(key, []store.Place{p}, 1) }

// freed tells waiters that keys may be free, of which no line is known: this client's, and those
// of other processes.
func (c *Client) freed(keys ...string) {
	c.mu.Lock()
	for _, key := range keys {
		if q := c.queues.All[key]; q != nil {
			q.look()
		}
	}
	c.mu.Unlock()
	if len(keys) == 0 || !c.watch.Announces() {
		return
	}
	c.background.Run(func() {
		for batch := range slices.Chunk(keys, batchSize) {
			all, _ := c.watch.Look(batch...) // otherwise they find out by themselves
			for i := range all {
				c.tellOf(&all[i])
			}
		}
	})
}

// tellOf tells those whose turn it is by a status.
func (c *Client) tellOf(s *store.Status) {
	waiting := s.Waiting("", "")
	c.tell(s.Key, waiting, s.Offered(waiting))
}

// announceBeside announces a release while the command that frees the key is under way, if others
// are in line: that saves the first of them a round trip. told is whom it told, and at when.
// Whoever asks too early asks again (line.View.Refused).
func (h *holding) announceBeside() (told []store.Notice, at monotonic.Moment) {
	c := h.client
	if c.prompt || h.terms.shares() || h.keep() > 0 {
		return nil, 0
	}
	waiting := h.whoWaits()
	h.mu.Lock()
	announce := len(waiting) > 0 && h.release.state == releasing && h.release.loss == nil
	known := len(h.line) > 0
	h.mu.Unlock()
	if !announce {
		return nil, 0
	}
	told = offers(h.ref.Key, waiting, store.Status{}.Offered(waiting))
	if !known { // they were in line at the last release: by now with other places
		told = offer(h.ref.Key, waiting[0])
		for i := range told {
			told[i].Place = ""
		}
	}
	if len(told) == 0 || !c.watch.TryAnnounce(told...) {
		return nil, 0
	}
	return told, c.clock.Now()
}

// untold returns those notices that were not sent beside a release. One without a place was meant
// for whatever place its process has in line.
func untold(all, told []store.Notice) (rest []store.Notice) {
	for _, n := range all {
		place := n
		place.Place = ""
		if !slices.Contains(told, n) && !slices.Contains(told, place) {
			rest = append(rest, n)
		}
	}
	return rest
}

// whoWaits returns who was last seen in line: by the grant of h, or lately by a release.
func (h *holding) whoWaits() []store.Place {
	if line := h.waiting(); len(line) > 0 {
		return line
	}
	c := h.client
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.queue.othersWait(now) {
		return h.queue.others
	}
	return nil
}

// othersWait reports whether other processes probably wait, because the last release found them
// waiting.
func (q *queue) othersWait(now monotonic.Moment) bool {
	return len(q.others) > 0 && now.Sub(q.othersAt) <= othersFor
}

// sawLine remembers who waited when h was released, before forget wakes this client's waiters.
func (c *Client) sawLine(h *holding, e store.Ended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := h.queue; len(e.Line) > 0 || q.others != nil {
		q.others, q.othersAt = e.Line, c.clock.Now()
	}
}

// nowOffered returns the notices after a release: to those whose turn it is, or who look when it
// will be.
func (h *holding) nowOffered(e store.Ended) []store.Notice {
	mode, limit := h.terms.mode, h.terms.limit
	if e.Err != nil || len(e.Line) == 0 {
		return nil
	}
	n := store.Status{}.Offered(e.Line)
	if h.keep() > 0 {
		return notices(store.KindMoved, h.ref.Key, e.Line[:min(n+1, len(e.Line))]) // the first may be dead
	}
	if e.Left > 0 {
		n = store.Status{Mode: mode, Limit: limit}.OfferedBeside(e.Line, e.Left)
	}
	return offers(h.ref.Key, e.Line, n)
}

// leaveLines gives up all places, because the client shuts down. c.mu is held.
func (c *Client) leaveLines() {
	for _, key := range slices.Sorted(maps.Keys(c.queues.All)) {
		if q := c.queues.All[key]; q.view.Joined {
			q.view.Joined = false
			c.places.GiveUp(key, q.view.Place)
		}
	}
}

// removePlace takes a place out of the line that was offered the key and did not take it.
func (c *Client) removePlace(key string, p store.Place) {
	if c.leaveLine(key, p, true) == nil {
		c.watch.Announce(offer(key, p)...) // its waiter joins again, if it lives
	}
}

// leaveLine takes a place out of a line, and tells those whose turn it is then.
func (c *Client) leaveLine(key string, p store.Place, silent bool) error {
	ctx, cancel := c.background.Within(context.Background(), releaseBound)
	defer cancel()
	c.calls.Add(observe.Leave)
	s, err := c.store.Leave(ctx, key, p, silent)
	if err != nil {
		if store.IsVerdict(err) {
			return nil
		}
		c.logger.Debug("mongolock: a waiter's place was not given up yet", "key", key, "error", err)
		return err
	}
	waiting := s.Waiting("", "")
	n := s.Offered(waiting)
	behind := 0
	switch mode, _ := p.Mode(); {
	case n > 0:
		behind = 1
	case s.Mode != store.Exclusive && (mode == store.Exclusive || p.Weight() > 1):
		behind = 2 // it waited for more than they do; the first of them may be dead
	}
	told := notices(store.KindOffered, key, waiting[:n])
	// These look at once: they would take KindNext for a release.
	told = append(told, notices(store.KindMoved, key, waiting[n:min(n+behind, len(waiting))])...)
	c.watch.Announce(told...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saw(&s)
	return nil
}
