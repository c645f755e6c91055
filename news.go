package mongolock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// besideStill is how long a release may take for which an announcement made beside it is enough.
const besideStill = 250 * time.Millisecond

// freed tells waiters that a key may be free, of which no line is known: this client's, and those
// of other processes.
func (c *Client) freed(key string) {
	c.queues.Ask([]string{key})
	if !c.watch.Announces() {
		return
	}
	c.background.Run(func() {
		if all, err := c.watch.Look(key); err == nil { // otherwise they find out by themselves
			c.tellOf(&all[0])
		}
	})
}

// tellOf tells those whose turn it is by a status.
func (c *Client) tellOf(s *store.Status) {
	waiting := s.Waiting("")
	n := s.Offered(waiting)
	c.watch.Announce(changed(s.Key, waiting, n, min(n, 1))...)
	c.expect(s.Key, waiting, n, n+1, -s.OfferedFor(), s.Used)
}

// announceBeside announces a release while the command that frees the key is under way, if others
// are in line: that saves the first of them a round trip. told is whom it told, and at when.
// Whoever asks too early asks again (line.View.Refused).
func (h *holding) announceBeside() (told []store.Notice, at monotonic.Moment) {
	c := h.client
	if h.terms.shares() || h.keep() > 0 {
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
	told = wake.Offers(h.ref.Key, waiting, store.Status{}.Offered(waiting))
	if !known { // they were in line at the last release: by now with other places
		told = wake.Offer(h.ref.Key, waiting[0])
		for i := range told {
			told[i].Place = ""
		}
	}
	if len(told) == 0 || !c.watch.TryAnnounce(told...) {
		return nil, 0
	}
	return told, c.clock.Now()
}

// whoWaits returns who was last seen in line: by the grant of h, or lately by a release.
func (h *holding) whoWaits() []store.Place {
	if line := h.waiting(); len(line) > 0 {
		return line
	}
	qs := &h.client.queues
	now := qs.clock.Now()
	qs.mu.Lock()
	defer qs.mu.Unlock()
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

// nowOffered returns the notices after a release: to those whose turn it is, or who look when it
// will be.
func (h *holding) nowOffered(e store.Ended) []store.Notice {
	if len(e.Line) == 0 {
		return nil
	}
	c, n, used := h.client, store.Status{}.Offered(e.Line), h.client.clock.Since(h.granted)
	if keep := h.keep(); keep > 0 {
		c.expect(h.ref.Key, e.Line, n, n+1, keep-used, used)
		return wake.Notices(store.KindMoved, h.ref.Key, e.Line[:min(n+1, len(e.Line))]) // the first may be dead
	}
	if e.Left > 0 { // others release, too, and tell those behind
		n = store.Status{Mode: h.terms.mode}.OfferedBeside(e.Line, e.Left)
		c.expect(h.ref.Key, e.Line, n, n, 0, used)
		return wake.Notices(store.KindOffered, h.ref.Key, e.Line[:n])
	}
	c.expect(h.ref.Key, e.Line, n, n+1, 0, used)
	return wake.Offers(h.ref.Key, e.Line, n)
}

// expect makes sure that somebody comes for a key that will be offered to n of a line, after a lease that was
// used for so long. Some of the line were told. If they have all died nobody who lives knows that the key is
// free: so this client looks a little before they are passed. It need not if it has the key itself by then,
// or waits and will have it.
func (c *Client) expect(key string, waiting []store.Place, n, told int, after, used time.Duration) {
	if n == 0 || len(waiting) <= told || !c.watch.Announces() {
		return
	}
	qs := &c.queues
	qs.mu.Lock()
	if qs.drained.Load() {
		qs.mu.Unlock()
		c.watch.Announce(wake.Notices(store.KindNext, key, waiting)...) // it will not see
		return
	}
	defer qs.mu.Unlock()
	q := qs.of(key)
	after += line.Patience(waiting[0], used) * 4 / 5
	q.freedAt, q.expected = qs.clock.Now(), waiting
	if q.check == nil {
		q.check = time.AfterFunc(after, func() { c.background.Go(func() { c.seeWhoCame(key) }) })
	} else {
		q.check.Reset(after)
	}
}

// seeWhoCame tells all who are in line of a key that is free since it was offered to those who were told.
func (c *Client) seeWhoCame(key string) {
	qs := &c.queues
	qs.mu.Lock()
	q := qs.of(key)
	seen := q.check == nil // by an earlier call
	knows := q.holder != nil || q.head != nil && q.view.Comes(q.freedAt)
	q.check, q.expected = nil, nil
	qs.mu.Unlock()
	if seen || knows {
		return
	}
	all, err := c.watch.Look(key)
	if err != nil {
		return // they find out by themselves
	}
	s := &all[0]
	if waiting := s.Waiting(""); s.Offered(waiting) > 0 && s.OfferedFor() > line.Patience(waiting[0], s.Used)/2 {
		c.watch.Announce(wake.Notices(store.KindMoved, key, waiting)...)
	}
}

// changed returns the notices of a key that is offered to n of a line, but was not released just now. So many
// behind them look at once: they would take KindNext for a release, and begin to count anew.
func changed(key string, waiting []store.Place, n, behind int) []store.Notice {
	told := wake.Notices(store.KindOffered, key, waiting[:n])
	return append(told, wake.Notices(store.KindMoved, key, waiting[n:min(n+behind, len(waiting))])...)
}

// leaveLine takes a place out of a line, and tells those whose turn it is then.
func (c *Client) leaveLine(key string, p store.Place) error {
	ctx, cancel := c.background.Within(context.Background(), releaseBound)
	defer cancel()
	s, err := c.store.Leave(ctx, key, p)
	if err != nil {
		if store.IsVerdict(err) {
			return nil
		}
		c.logger.Debug("mongolock: a waiter's place was not given up yet", "key", key, "error", err)
		return err
	}
	waiting := s.Waiting("")
	n := s.Offered(waiting)
	behind := 0
	switch {
	case n > 0:
		behind = 1
	case s.Mode != store.Exclusive && line.Reserves(p):
		behind = 2 // it waited for more than they do; the first of them may be dead
	case len(waiting) > 0 && line.EndsUntold(&s, waiting[0]):
		behind = 1 // it may not know when that is, nor that it is the first
	}
	c.watch.Announce(changed(key, waiting, n, behind)...)
	c.expect(key, waiting, n, n+1, -s.OfferedFor(), s.Used)
	c.queues.Read([]store.Status{s})
	return nil
}
