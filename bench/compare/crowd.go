package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	random "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	crowdProcesses = 9 // at most; more waiters are several in a process
	crowdSettles   = 400 * time.Millisecond
	crowdStarts    = 200 * time.Millisecond // spreads the questions of those that poll
	crowdAway      = pollPause
	crowdLimit     = 20 * time.Second // then the last handoff is taken to be as long as it was so far

	contendLasts   = 1500 * time.Millisecond
	contendSettles = 500 * time.Millisecond
)

// contending is how many processes want one key, all the time.
var contending = [...]int{2, 8, 32}

// A size is a number of waiters, and how many handoffs to take of them in a round. The
// pauses are how long a holder keeps the key: at any point between two questions of those
// that ask again and again, and long enough for a single waiter to be waiting.
type size struct {
	waiters, samples int
	least, spread    time.Duration
}

var crowds = [...]size{
	{1, 20, 30 * time.Millisecond, 100 * time.Millisecond},
	{8, 25, 10 * time.Millisecond, 40 * time.Millisecond},
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
	setting setting

	mu       sync.Mutex // protects what follows
	took     durations
	grants   int
	released time.Time
	next     chan struct{} // closed by the next grant
	holders  int
}

var (
	errTwo    = errors.New("two had one key at a time")
	errEnough = errors.New("there are enough handoffs")
	errLimit  = errors.New("a handoff takes too long")
)

// handOvers lets the key go around until there are enough samples. Of many waiters another one is
// away for a moment: if it asked at once, at its successor's grant, all that poll would soon ask in
// step.
func (c *crowd) handOvers(ctx context.Context, r *rival) (took durations, err error) {
	workers := c.waiters + 1 // one holds it
	if c.waiters > 1 {
		workers++
	}
	err = r.with(ctx, min(workers, crowdProcesses), c.setting, func(all []locks) error {
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
		switch err := context.Cause(ctx); {
		case errors.Is(err, errLimit) && !c.released.IsZero():
			took = append(took, time.Since(c.released))
		case !errors.Is(err, errEnough):
			return err
		}
		return nil
	})
	return took, err
}

// work takes the key again and again, but leaves it to another each time.
func (c *crowd) work(ctx context.Context, by locks, key string) error {
	wait := func(until <-chan struct{}, d time.Duration) {
		var timer <-chan time.Time
		if until == nil {
			timer = time.After(d)
		}
		select {
		case <-until:
		case <-timer:
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
		wait(nil, pause)
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
		wait(next, 0)
		if c.waiters > 1 {
			wait(nil, random.N(crowdAway))
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
		c.took = append(c.took, at.Sub(c.released))
	}
	return pause, c.next, nil
}

func (c *crowd) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.took) >= c.samples
}

// contention is what became of processes that all want one key, all the time.
type contention struct {
	rates, fairness, asked []float64 // of each round: grants a second, Jain's index, requests a grant
	waits                  durations // of each grant; at the end also of those that still wait
}

// measureContended lets processes take one key and give it back without any pause.
func (r *rival) measureContended(ctx context.Context) error {
	for i, n := range contending {
		if err := r.contend(ctx, n, &r.contended[i]); err != nil {
			return fmt.Errorf("%d processes: %w", n, err)
		}
	}
	return nil
}

func (r *rival) contend(ctx context.Context, n int, c *contention) error {
	return r.with(ctx, n, setting{}, func(all []locks) error {
		key := rand.Text()
		for _, one := range all { // so that each is connected
			if err := one.pair(ctx, key); err != nil {
				return err
			}
		}
		ctx, over := context.WithCancel(ctx)
		defer over()
		counts, waits, errs := make([]float64, len(all)), make([]durations, len(all)), make([]error, len(all))
		var inside atomic.Int32
		var counting atomic.Bool
		var workers sync.WaitGroup
		for i, by := range all {
			workers.Go(func() { counts[i], waits[i], errs[i] = contend(ctx, by, key, &inside, &counting) })
		}
		<-time.After(contendSettles)
		began, asked := time.Now(), r.asked.Load()
		counting.Store(true)
		<-time.After(contendLasts)
		counting.Store(false)
		lasted, sent := time.Since(began).Seconds(), float64(r.asked.Load()-asked)
		over()
		workers.Wait()
		var grants float64
		for i := range all {
			grants += counts[i]
			c.waits = append(c.waits, waits[i]...)
		}
		c.rates = append(c.rates, grants/lasted)
		c.fairness = append(c.fairness, jain(counts))
		c.asked = append(c.asked, sent/max(grants, 1))
		return errors.Join(errs...)
	})
}

func contend(ctx context.Context, by locks, key string, inside *atomic.Int32, counting *atomic.Bool) (grants float64, waits durations, err error) {
	for {
		asked := time.Now()
		release, err := by.acquire(ctx, key)
		waits = append(waits, time.Since(asked))
		switch {
		case err != nil && ctx.Err() != nil:
			return grants, waits, nil
		case err != nil:
			return grants, waits, err
		}
		if inside.Add(1) > 1 {
			return grants, waits, errTwo
		}
		if counting.Load() {
			grants++
		}
		inside.Add(-1)
		if err := release(); err != nil {
			return grants, waits, err
		}
	}
}

// jain returns Jain's index of fairness: 1 if all have the same, 1/n if one has all.
func jain(all []float64) float64 {
	var sum, squares float64
	for _, x := range all {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(all)) * squares)
}
