package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/suspend"
	"github.com/mongolock/mongolock/pathlock"
)

// A holding takes locks of a tree that are refreshed in the background.
type holding struct {
	tree   *pathlock.Tree
	margin time.Duration
}

// A heldPath is a lock of a path that is refreshed every third of its timeout. It is held in
// the sense of this program: trusted from before its last refresh was sent, for the time that
// the refresh granted less the margin, and over before the storage can grant the path again.
type heldPath struct {
	holding
	lock   pathlock.Lock
	clock  monotonic.Clock
	done   chan struct{} // closed when it is over
	stop   context.CancelFunc
	beaten sync.WaitGroup

	mu       sync.Mutex // protects what follows
	deadline monotonic.Moment
	over     error
}

var errPathLost = fmt.Errorf("%w: not refreshed in time", mongolock.ErrLost)

// take takes a lock. It waits for the time patience: for ever if that is negative, not at all
// if it is 0.
func (h holding) take(ctx context.Context, r pathlock.Request, patience time.Duration) (*heldPath, error) {
	var lock pathlock.Lock
	var err error
	switch {
	case patience == 0:
		lock, err = h.tree.Lock(ctx, r)
	case patience > 0:
		waiting, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		lock, err = h.tree.LockWait(waiting, r)
	default:
		lock, err = h.tree.LockWait(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	beating, stop := context.WithCancel(context.Background())
	p := &heldPath{holding: h, lock: lock, clock: monotonic.CountingSleep(suspend.New()), done: make(chan struct{}), stop: stop}
	// Left counts from the beginning of the call, which may have waited for long.
	if _, err := p.refresh(beating, lock.Timeout); err != nil {
		stop()
		return nil, errors.Join(err, p.giveBack())
	}
	p.beaten.Go(func() { p.beat(beating) })
	return p, nil
}

// refresh restarts the lock's time, and moves the deadline. certain reports that the lock
// is gone.
func (p *heldPath) refresh(ctx context.Context, within time.Duration) (certain bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	sent := p.clock.Now()
	lock, err := p.tree.Refresh(ctx, p.lock.Token, p.lock.Timeout)
	if err != nil {
		return errors.Is(err, pathlock.ErrUnknownToken), err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over == nil {
		p.deadline = max(p.deadline, sent.Add(lock.Left-p.margin))
	}
	return false, nil
}

// beat refreshes until it is stopped, or the lock is over.
func (p *heldPath) beat(ctx context.Context) {
	ttl := p.lock.Timeout
	next := p.clock.Now().Add(ttl / 3)
	for {
		pause := min(p.clock.Until(next), p.Remaining(), time.Second) // timers do not count while a machine sleeps
		timer := time.NewTimer(max(pause, time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		switch {
		case p.Err() != nil:
			return
		case p.clock.Now() < next:
			continue
		}
		sent := p.clock.Now()
		gone, err := p.refresh(ctx, max(ttl/10, 50*time.Millisecond))
		switch {
		case gone:
			p.end(fmt.Errorf("%w: the path is no longer held by it", mongolock.ErrLost))
			return
		case err != nil:
			next = p.clock.Now().Add(min(ttl/20, 5*time.Second))
		default:
			next = sent.Add(ttl / 3)
		}
	}
}

// end ends the hold. Later calls change nothing.
func (p *heldPath) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over == nil {
		p.over = why
		close(p.done)
	}
}

// Err returns nil while the lock is held, and afterwards why it is over. It reads the clock
// itself.
func (p *heldPath) Err() error {
	p.mu.Lock()
	over, late := p.over, p.clock.Now() >= p.deadline
	p.mu.Unlock()
	if over == nil && late {
		p.end(errPathLost)
		return errPathLost
	}
	return over
}

// Done returns a channel that is closed when the hold is over.
func (p *heldPath) Done() <-chan struct{} { return p.done }

// Remaining returns how long the lock is held, if it is not refreshed again.
func (p *heldPath) Remaining() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		return 0
	}
	return max(0, p.clock.Until(p.deadline))
}

// release ends the hold and gives the path back. A path that was lost belongs to another holder
// by now, or runs out.
func (p *heldPath) release() error {
	lost := p.Err()
	p.end(mongolock.ErrReleased)
	p.stop()
	p.beaten.Wait()
	if errors.Is(lost, mongolock.ErrLost) {
		return nil
	}
	return p.giveBack()
}

// giveBack removes the lock. If a reply is lost it asks again.
func (p *heldPath) giveBack() error {
	var err error
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		err = p.tree.Release(ctx, p.lock.Path, p.lock.Token)
		cancel()
		if err == nil || errors.Is(err, pathlock.ErrUnknownToken) {
			return nil
		}
	}
	return err
}
