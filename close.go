package mongolock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Shutdown closes the client after giving holders time to finish. Calls that wait for
// a key end with ErrClosed, and the contexts of all leases are cancelled. Shutdown then
// waits until their holders have released them, or until ctx ends, and closes the
// client. It returns what Close returns, joined with the context's error if leases were
// left.
func (c *Client) Shutdown(ctx context.Context) error {
	c.drain()
	leases := c.unsettledLeases()
	for _, l := range leases {
		l.cancelContexts(ErrClosed)
	}
	var err error
	select {
	case <-c.noLeases():
	case <-ctx.Done():
		err = fmt.Errorf("mongolock: shutdown: leases left: %w", contextError(ctx))
	}
	return errors.Join(err, c.Close())
}

// Close ends every lease (ErrClosed), gives their holders one margin to stop, releases
// what is left and waits for all background work. That takes at most the margin and
// 5 s. The error names what is unsettled then, which runs out by itself. No goroutine
// is left. Later calls return ErrClosed; closing twice is harmless.
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
	leases := c.unsettledLeases()

	var grace time.Duration
	for _, l := range leases {
		l.end(ErrClosed)
		grace = max(grace, l.untilGiveBack())
	}
	if grace > 0 {
		c.letHoldersStop(grace)
	}
	giveUp := time.AfterFunc(releaseBound, c.teardown)
	defer giveUp.Stop()
	giveBackAll(leases)
	c.keeper.stop()
	c.watch.stop()
	c.mu.Lock()
	c.closed = true // from here on nothing new begins, and Wait may be called
	c.mu.Unlock()
	c.background.Wait()
	c.teardown()
	return c.unsettled(leases)
}

// unsettled is the error of Close: what the releases of leases answered that it ended,
// and which leases and claims are left to run out by themselves.
func (c *Client) unsettled(leases []*Lease) error {
	var errs []error
	for _, l := range leases {
		if settled, err := l.result(); settled && errors.Is(l.Err(), ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, l := range c.unsettledLeases() {
		_, err := l.result()
		errs = append(errs, fmt.Errorf("mongolock: close: %q is not released and runs out by itself: %w", l.key, err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref := range c.cleaner.claims {
		errs = append(errs, fmt.Errorf("mongolock: close: a claim of %q runs out by itself: %w", ref.Key, ErrOutcomeUnknown))
	}
	return errors.Join(errs...)
}

func (c *Client) unsettledLeases() []*Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Lease
	for l := c.leases; l != nil; l = l.next {
		all = append(all, l)
	}
	return all
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
	if c.empty == nil {
		c.empty = make(chan struct{})
		c.checkEmpty()
	}
	return c.empty
}

// checkEmpty closes the channel of noLeases if no lease is left. With c.mu held.
func (c *Client) checkEmpty() {
	if c.empty == nil || c.leases != nil {
		return
	}
	select {
	case <-c.empty:
	default:
		close(c.empty)
	}
}

// giveBackAll gives leases back, some at a time. Those that fail are tried again in the
// background.
func giveBackAll(leases []*Lease) {
	todo := make(chan *Lease, len(leases))
	for _, l := range leases {
		todo <- l
	}
	close(todo)
	var wg sync.WaitGroup
	for range min(closeWorkers, len(leases)) {
		wg.Go(func() {
			for l := range todo {
				_ = l.giveBack() // the lease keeps the error
			}
		})
	}
	wg.Wait()
}

// drain ends the waits, and refuses new calls of Acquire.
func (c *Client) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained.Swap(true) {
		close(c.draining)
	}
}

// enlist adds l to the client's list, until it is settled. With c.mu held.
func (c *Client) enlist(l *Lease) {
	if l.next = c.leases; l.next != nil {
		l.next.prev = l
	}
	c.leases = l
}

// delist removes l from the list, and reports whether it was there. With c.mu held.
func (c *Client) delist(l *Lease) bool {
	switch {
	case l.prev != nil:
		l.prev.next = l.next
	case c.leases == l:
		c.leases = l.next
	default:
		return false
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.prev, l.next = nil, nil
	c.checkEmpty()
	return true
}

// untilGiveBack is how long Close must wait before it gives the lease back.
func (l *Lease) untilGiveBack() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.err, ErrClosed) {
		return l.margin
	}
	if l.release.loss == nil {
		return 0
	}
	return l.client.clock.Until(l.release.loss.notBefore)
}
