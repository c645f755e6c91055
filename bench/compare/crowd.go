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
	crowdLimit     = 20 * time.Second // then the last hand-over is taken to be as long as it was so far
	farHandOvers   = 6

	contendProcesses = 8
	contendLasts     = 1500 * time.Millisecond
)

// crowds are the numbers of waiters, and how many hand-overs to take of each in a round. The
// pauses are how long a holder keeps the key: at any point between two questions of those
// that ask again and again, and long enough for a single waiter to be waiting.
var crowds = [...]struct {
	waiters, samples int
	least, spread    time.Duration
}{
	{1, 20, 30 * time.Millisecond, 100 * time.Millisecond},
	{8, 25, 10 * time.Millisecond, 40 * time.Millisecond},
	{64, 25, 10 * time.Millisecond, 40 * time.Millisecond},
}

func (r *rival) measureWaiters(ctx context.Context) error {
	for i, size := range crowds {
		c := crowd{waiters: size.waiters, samples: size.samples, least: size.least, spread: size.spread}
		took, err := c.handOvers(ctx, r)
		if err != nil {
			return fmt.Errorf("%d waiters: %w", size.waiters, err)
		}
		r.handOver[i] = append(r.handOver[i], took...)
	}
	return nil
}

// A crowd is a holder and its waiters, who hand a key around. The time from the call that
// releases it to the return of the call that has it next is one hand-over.
type crowd struct {
	waiters, samples int
	least, spread    time.Duration
	setting          setting

	mu       sync.Mutex // protects what follows
	took     durations
	grants   int
	released time.Time
	next     chan struct{} // closed by the next grant
	holders  int
}

var (
	errTwo    = errors.New("two had one key at a time")
	errEnough = errors.New("there are enough hand-overs")
	errLimit  = errors.New("a hand-over takes too long")
)

// handOvers lets the key go around until there are enough samples.
func (c *crowd) handOvers(ctx context.Context, r *rival) (_ durations, err error) {
	if c.spread == 0 {
		c.least, c.spread = crowds[0].least, crowds[0].spread
	}
	all, closeAll, err := r.processes(ctx, min(workersOf(c.waiters), crowdProcesses), c.setting)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := closeAll(); err == nil {
			err = closed
		}
	}()
	ctx, end := context.WithCancelCause(ctx) // no deadline: drivers give up some time before one
	defer end(nil)
	defer time.AfterFunc(crowdLimit, func() { end(errLimit) }).Stop()
	c.next = make(chan struct{})
	key := rand.Text()
	var workers sync.WaitGroup
	for i := range workersOf(c.waiters) {
		workers.Go(func() {
			<-time.After(random.N(crowdStarts))
			if err := c.work(ctx, all[i%len(all)], key); err != nil {
				end(err)
			} else {
				end(errEnough) // for those that still wait, too
			}
		})
	}
	workers.Wait()
	switch err := context.Cause(ctx); {
	case errors.Is(err, errLimit) && !c.released.IsZero():
		return append(c.took, time.Since(c.released)), nil
	case !errors.Is(err, errEnough):
		return nil, err
	}
	return c.took, nil
}

// work takes the key again and again, but leaves it to another each time.
func (c *crowd) work(ctx context.Context, by locks, key string) error {
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
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
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
			select {
			case <-time.After(random.N(crowdAway)):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// workersOf returns how many processes hand a key around of which so many wait at a time:
// one holds it. Of many waiters another one is away for a moment. If it asked at once, at
// its successor's grant, all that poll would soon ask in step.
func workersOf(waiters int) int {
	if waiters == 1 {
		return 2
	}
	return waiters + 2
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
	if c.grants > 2 && len(c.took) < c.samples { // the first hand-over is the warm-up
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
	rates, fairness []float64 // of each round: grants a second, and Jain's index
	waits           durations // of each grant; at the end also of those that still wait
}

// measureContended lets processes take one key and give it back without any pause.
func (r *rival) measureContended(ctx context.Context) (err error) {
	all, closeAll, err := r.processes(ctx, contendProcesses, setting{})
	if err != nil {
		return err
	}
	defer func() {
		if closed := closeAll(); err == nil {
			err = closed
		}
	}()
	key := rand.Text()
	for _, one := range all { // so that each is connected
		release, err := one.acquire(ctx, key)
		if err == nil {
			err = release()
		}
		if err != nil {
			return err
		}
	}
	ctx, over := context.WithCancel(ctx)
	defer over()
	defer time.AfterFunc(contendLasts, over).Stop()
	counts := make([]float64, len(all))
	waits := make([]durations, len(all))
	errs := make([]error, len(all))
	var inside atomic.Int32
	var workers sync.WaitGroup
	began := time.Now()
	for i, by := range all {
		workers.Go(func() {
			counts[i], waits[i], errs[i] = contend(ctx, by, key, &inside)
		})
	}
	workers.Wait()
	var grants float64
	for i := range all {
		grants += counts[i]
		r.contended.waits = append(r.contended.waits, waits[i]...)
	}
	r.contended.rates = append(r.contended.rates, grants/min(time.Since(began), contendLasts).Seconds())
	r.contended.fairness = append(r.contended.fairness, jain(counts))
	return errors.Join(errs...)
}

func contend(ctx context.Context, by locks, key string, inside *atomic.Int32) (grants float64, waits durations, err error) {
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
		if ctx.Err() == nil {
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
