package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	random "math/rand/v2"
	"sync"
	"time"
)

const (
	crowdProcesses = 9 // at most; more waiters are several in a process
	crowdSettles   = 400 * time.Millisecond
	crowdStarts    = 200 * time.Millisecond // spreads the questions of those that poll
	crowdAway      = pollPause
	crowdLimit     = 2 * time.Minute
)

// A size is a number of waiters, and how many handoffs to take of them in a round. The
// pauses are how long a holder keeps the key: at any point between two questions of those
// that ask again and again, and long enough for a single waiter to be waiting.
type size struct {
	waiters, samples int
	least, spread    time.Duration
}

var crowds = [...]size{
	{1, 20, 30 * time.Millisecond, 100 * time.Millisecond},
	{64, 25, 10 * time.Millisecond, 40 * time.Millisecond},
}

func (r *rival) measureWaiters(ctx context.Context) error {
	for i, size := range crowds {
		c := crowd{size: size}
		took, err := c.handOvers(ctx, r)
		if err != nil {
			return fmt.Errorf("%d waiters: %w", size.waiters, err)
		}
		r.handOver[i] = append(r.handOver[i], took...)
	}
	return nil
}

// A crowd is a holder and its waiters, who hand a key around. The time from the call that
// releases it to the return of the call that has it next is one handoff.
type crowd struct {
	size

	mu       sync.Mutex // protects what follows
	took     figure
	grants   int
	released time.Time
	next     chan struct{} // closed by the next grant
	holders  int
}

var (
	errTwo    = errors.New("two had one key at a time")
	errEnough = errors.New("there are enough handoffs")
	errLimit  = errors.New("the handoffs take too long")
)

// handOvers lets the key go around until there are enough samples. Of many waiters another one is
// away for a moment: if it asked at once, at its successor's grant, all that poll would soon ask in
// step.
func (c *crowd) handOvers(ctx context.Context, r *rival) (took figure, err error) {
	workers := c.waiters + 1 // one holds it
	if c.waiters > 1 {
		workers++
	}
	err = r.with(ctx, min(workers, crowdProcesses), func(all []locks) error {
		ctx, end := context.WithCancelCause(ctx) // no deadline: drivers give up some time before one
		defer end(nil)
		defer time.AfterFunc(crowdLimit, func() { end(errLimit) }).Stop()
		c.next = make(chan struct{})
		key := rand.Text()
		var at sync.WaitGroup
		for i := range workers {
			at.Go(func() {
				<-time.After(random.N(crowdStarts))
				if err := c.work(ctx, all[i%len(all)], key); err != nil {
					end(err)
				} else {
					end(errEnough) // for those that still wait, too
				}
			})
		}
		at.Wait()
		took = c.took
		if err := context.Cause(ctx); !errors.Is(err, errEnough) {
			return err
		}
		return nil
	})
	return took, err
}

// work takes the key again and again, but leaves it to another each time.
func (c *crowd) work(ctx context.Context, by locks, key string) error {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for !c.done() {
		release, err := by.acquire(ctx, key)
		at := time.Now()
		if err != nil {
			if ctx.Err() != nil { // sent away
				return context.Cause(ctx)
			}
			return err
		}
		pause, next, err := c.granted(at)
		if err != nil {
			return err
		}
		wait(pause)
		c.mu.Lock()
		c.holders--
		c.released = time.Now()
		c.mu.Unlock()
		if err := release(); err != nil {
			return err
		}
		if c.done() {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
		}
		if c.waiters > 1 {
			wait(random.N(crowdAway))
		}
	}
	return nil
}

// granted takes note of a grant, and returns how long to keep the key, and what the next
// grant closes.
func (c *crowd) granted(at time.Time) (time.Duration, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders++; c.holders > 1 {
		return 0, nil, errTwo
	}
	close(c.next)
	c.next = make(chan struct{})
	pause := c.least + random.N(c.spread)
	c.grants++
	if c.grants == 1 {
		pause += crowdSettles
	}
	if c.grants > 2 && len(c.took) < c.samples { // the first handoff is the warm-up
		c.took = append(c.took, at.Sub(c.released).Seconds())
	}
	return pause, c.next, nil
}

func (c *crowd) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.took) >= c.samples
}
