package mongolock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/inside"
)

// Shutdown ends the client gently: waits end with ErrClosed, the contexts of all
// leases are cancelled, and it waits for their holders to release them until ctx
// ends. Then it closes the client and returns what Close returns, joined with the
// context's error if leases were left.
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

// Close ends every lease (ErrClosed), leaves their holders one margin to stop,
// releases what is left and waits for all background work: at most the margin and
// 5 s. What is unsettled then is named in the error and runs out by itself. No
// goroutine is left. Later calls return ErrClosed; closing twice is harmless.
//
// Close the client before the database connection it works on.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.closing // a sync.Once would do, were it not for those who wait in a bubble of virtual time
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
	c.closed = true // from here nothing new is begun, and Wait may be called
	c.mu.Unlock()
	c.background.Wait()
	c.teardown()
	return c.unsettled(leases)
}

// unsettled is what Close has to report: leases it ended that were lost, and what
// is left to run out by itself.
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
	for ref := range c.unknown {
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

func init() {
	inside.Leases = func(client any) (leases []any) {
		for _, l := range client.(*Client).unsettledLeases() {
			leases = append(leases, l)
		}
		return leases
	}
}

// letHoldersStop waits for the margin, or until every lease is given back.
func (c *Client) letHoldersStop(margin time.Duration) {
	timer := time.NewTimer(margin)
	defer timer.Stop()
	select {
	case <-c.noLeases():
	case <-timer.C:
	}
}

// noLeases is closed once every lease is given back; for use after drain.
func (c *Client) noLeases() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.empty == nil {
		c.empty = make(chan struct{})
		c.checkEmpty()
	}
	return c.empty
}

// checkEmpty closes the channel of noLeases when it is time. With c.mu held.
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

// giveBackAll gives back what is not yet, some at a time. What fails goes on in
// the background.
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
				_ = l.giveBack() // kept by the lease; see unsettled
			}
		})
	}
	wg.Wait()
}

// drain refuses new acquires and ends the waits.
func (c *Client) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained.Swap(true) {
		close(c.draining)
	}
}

// enlist remembers l until it is settled. With c.mu held.
func (c *Client) enlist(l *Lease) {
	if l.next = c.leases; l.next != nil {
		l.next.prev = l
	}
	c.leases = l
}

// delist forgets it, and reports whether it was remembered. With c.mu held.
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

// untilGiveBack is how long Close has to wait before it may give the lease back.
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
