package mongolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// These limit how long many releases in one call may take. The attempts at a blocked record, of
// which the last is for that record alone, fit into the time of Close.
const (
	bulkBound  = releaseBound * 2 / 5
	againBound = releaseBound / 6 // in a repeated attempt

	repeatParts = 16 // releases that take the place of one that failed
)

// Shutdown closes the client after giving holders time to finish. Calls that wait for a key end
// with ErrClosed, and the contexts of all leases are cancelled. Shutdown then waits until their
// holders have released them, or until ctx ends, and closes the client. It returns what Close
// returns, joined with the context's error if leases were left.
func (c *Client) Shutdown(ctx context.Context) error {
	c.drain()
	for _, h := range c.unsettled() {
		if l := h.current(); l != nil {
			l.contexts().End(ErrClosed)
		}
	}
	var err error
	select {
	case <-c.noLeases():
	case <-ctx.Done():
		err = fmt.Errorf("mongolock: shutdown: leases left: %w", contextError(ctx))
	}
	return errors.Join(err, c.Close())
}

// Close ends every lease (ErrClosed), gives their holders one margin to stop, releases the
// leases that are left and waits for all background work. That takes at most the margin and 5
// s. The error names the leases and claims that are unsettled then; they run out in the
// database. No goroutine is left. Later calls return ErrClosed; closing twice is harmless. Many
// leases are released together, where the store can do that: 10,000 fit into the 5 s over a
// slow link.
//
// Close the client before its database connection.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.closing // no sync.Once: a goroutine that waits for one is not durably blocked in a bubble of virtual time
	c.closing = true
	c.mu.Unlock()
	if first {
		c.closeIs = c.shut()
		close(c.closeOK)
	}
	<-c.closeOK
	return c.closeIs
}

func (c *Client) shut() error {
	c.drain()
	all := c.unsettled()
	var grace time.Duration
	for _, h := range all {
		h.end(ErrClosed)
		grace = max(grace, h.untilGiveBack())
	}
	if grace > 0 {
		c.letHoldersStop(grace)
	}
	giveUp := time.AfterFunc(releaseBound, c.background.Cut)
	defer giveUp.Stop()
	giveBackAll(all)
	if c.sessions != nil {
		c.sessions.close()
	}
	c.keeper.Stop()
	c.watch.Close()
	c.background.Wait() // from here on no background work begins
	c.unwatch()
	return c.leftBehind(all)
}

// leftBehind returns the error of Close: the errors of the releases, and the leases and claims
// that are left to run out.
func (c *Client) leftBehind(all []*holding) error {
	var errs []error
	for _, h := range all {
		if settled, err := h.outcome(); settled && errors.Is(h.why(), ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, h := range c.unsettled() {
		_, err := h.outcome()
		errs = append(errs, fmt.Errorf("mongolock: close: %q is not released and runs out by itself: %w", h.ref.Key, err))
	}
	for _, ref := range c.cleaner.Left() {
		errs = append(errs, fmt.Errorf("mongolock: close: a claim of %q runs out by itself: %w", ref.Key, ErrOutcomeUnknown))
	}
	return errors.Join(errs...)
}

// letHoldersStop waits for the margin, or until every lease has been given back.
func (c *Client) letHoldersStop(margin time.Duration) {
	timer := time.NewTimer(margin)
	defer timer.Stop()
	select {
	case <-c.noLeases():
	case <-timer.C:
	}
}

// noLeases returns a channel that is closed once every lease has been given back. Use
// it after drain.
func (c *Client) noLeases() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held.emptied()
}

// giveBackAll gives leases back, with several calls under way at once. Many leases go in bulks,
// where the store has these. Failed releases are repeated in the background.
func giveBackAll(leases []*holding) {
	for len(leases) > 0 {
		c, n := leases[0].client, 0
		for n < len(leases) && leases[n].client == c {
			n++
		}
		c.giveBackIn(c.bulks(leases[:n]), bulkBound)
		leases = leases[n:]
	}
}

// bulks returns the parts in which leases are given back. A lease that can be handed over is a
// part of its own. So is each lease if they are few and the store claims keys together but does
// not release them together.
func (c *Client) bulks(leases []*holding) (parts [][]*holding) {
	c.mu.Lock()
	few, together := len(leases) <= closeWorkers, c.together != nil && !c.oneByOne
	c.mu.Unlock()
	var many []*holding
	for i, h := range leases {
		if successor, _ := h.successor(); successor != nil || c.bulk == nil || few && !(together && h.isPlain()) {
			parts = append(parts, leases[i:i+1])
		} else {
			many = append(many, h)
		}
	}
	return slices.AppendSeq(parts, slices.Chunk(many, batchSize))
}

// giveBackIn gives leases back part by part, several parts at a time. A part of several leases
// may take bound.
func (c *Client) giveBackIn(parts [][]*holding, bound time.Duration) {
	giveBack := func(part []*holding) {
		if len(part) == 1 {
			_ = part[0].giveBack() // the lease keeps the error
		} else {
			c.giveBackMany(part, bound)
		}
	}
	if len(parts) == 1 { // a goroutine for it would take longer than all else that this process does
		giveBack(parts[0])
		return
	}
	todo := make(chan []*holding, len(parts))
	for _, part := range parts {
		todo <- part
	}
	close(todo)
	var wg sync.WaitGroup
	for range min(closeWorkers, len(parts)) {
		wg.Go(func() {
			for part := range todo {
				giveBack(part)
			}
		})
	}
	wg.Wait()
}

// giveBackMany is giveBack for many leases, with one store call. The call may use only a part
// of a release's time, so that one blocked record does not use up the time of all: the leases
// that are left are tried again in smaller parts.
func (c *Client) giveBackMany(leases []*holding, bound time.Duration) {
	mine, others := make([]*holding, 0, len(leases)), []<-chan struct{}(nil)
	batch := make([]store.Ending, 0, len(leases))
	for _, h := range leases {
		switch other, over := h.beginRelease(); {
		case over:
		case other != nil:
			others = append(others, other)
		default:
			mine, batch = append(mine, h), append(batch, store.Ending{Ref: h.ref, Keep: h.keep(), Again: bound == againBound})
		}
	}
	values, end := c.observe(context.Background(), OpRelease, "", nil)
	ctx, cancel := c.background.Within(values, bound)
	answers := c.bulk.ReleaseMany(ctx, batch)
	cancel()

	var errs []error
	var free []string
	var failed []*holding
	for i, h := range mine {
		done, wake, err := h.released(answers[i].Wanted, answers[i].Err)
		errs = append(errs, err)
		if wake {
			free = append(free, h.ref.Key)
		}
		if !done && h.failedRelease(err) {
			failed = append(failed, h)
		}
	}
	c.freed(free...)
	end(Outcome{Err: errors.Join(errs...), Count: len(mine)})
	if len(failed) > 0 {
		c.background.Go(func() { c.repeat(failed) })
	}
	for _, other := range others {
		<-other
	}
}

// repeat makes further attempts for leases whose first attempt failed together. It makes them
// in parts, side by side, so that a record which holds up the release of others is soon alone.
func (c *Client) repeat(leases []*holding) {
	for pause := backoff.New(50*time.Millisecond, 5*time.Second); c.background.Pause(pause.Next()); {
		leases = slices.DeleteFunc(leases, (*holding).isGivenBack)
		if len(leases) == 0 {
			return
		}
		c.giveBackIn(slices.Collect(slices.Chunk(leases, (len(leases)+repeatParts-1)/repeatParts)), againBound)
	}
}

// isGivenBack reports whether the lease is settled. A lease that has run out is.
func (h *holding) isGivenBack() bool {
	c := h.client
	h.mu.Lock()
	token := h.token
	done, ranOut := h.release.state == settled, c.clock.Now() >= h.honoured()
	if ranOut && !done {
		h.release.settle(h.answered(nil))
	}
	h.mu.Unlock()
	if ranOut && !done {
		c.logger.Info("mongolock: could not give a lease back before it ran out", "key", h.ref.Key, "token", token)
		h.forget()
		c.freed(h.ref.Key)
	}
	return done || ranOut
}

// untilGiveBack returns how long Close must wait before it gives the lease back.
func (h *holding) untilGiveBack() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.lease == nil:
		return 0
	case errors.Is(h.err, ErrClosed):
		return h.term.Margin()
	}
	if h.release.loss == nil {
		return 0
	}
	return h.client.clock.Until(h.release.loss.notBefore)
}

// outcome returns whether the holding is given back, and the error of that so far.
func (h *holding) outcome() (done bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.result()
}

// honoured returns until when the store may honour the holding. A late renewal may have put it
// into a session. Locked.
func (h *holding) honoured() monotonic.Moment {
	s := h.member.named
	if s == nil {
		return h.term.Honoured()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return monotonic.Never
	}
	return max(h.term.Honoured(), s.term.Honoured())
}
