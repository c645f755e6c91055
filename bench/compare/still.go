package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	pairWarmUps = 5
	pairs       = 80

	idleWaiters   = 64
	idleProcesses = 8
	idleSettles   = 3 * time.Second
	idleWoken     = 30 * time.Second // a TTL: each of our waiters asks once in it, when the first grant would be over
	idlePolled    = 3 * time.Second
)

// measurePair acquires and releases a free key.
func (r *rival) measurePair(ctx context.Context) error {
	return r.with(ctx, 1, func(all []locks) error {
		for i := range pairWarmUps + pairs {
			start := time.Now()
			if err := all[0].pair(ctx, "free"); err != nil {
				return err
			}
			if i >= pairWarmUps {
				r.pair = append(r.pair, time.Since(start).Seconds())
			}
		}
		return nil
	})
}

func (l locks) pair(ctx context.Context, key string) error {
	release, err := l.acquire(ctx, key)
	if err != nil {
		return err
	}
	return release()
}

// measureIdle counts what a holder and its waiters ask their server while nothing happens.
func (r *rival) measureIdle(ctx context.Context) error {
	lasts := map[bool]time.Duration{false: idleWoken, true: idlePolled}[r.polls]
	if r.idle > 0 { // another round takes as long and shows the same
		return nil
	}
	return r.with(ctx, 1+idleProcesses, func(all []locks) error {
		release, err := all[0].acquire(ctx, "idle")
		if err != nil {
			return err
		}
		waits, leave := context.WithCancel(ctx)
		defer leave()
		ended := make(chan error, idleWaiters)
		for i := range idleWaiters {
			go func() {
				release, err := all[1+i%idleProcesses].acquire(waits, "idle")
				if err == nil {
					err = errors.Join(errTwo, release())
				}
				ended <- err
			}()
		}
		<-time.After(idleSettles)
		before, began := r.asked.Load(), time.Now()
		select {
		case <-time.After(lasts):
		case err := <-ended:
			return fmt.Errorf("a waiter did not wait: %w", err)
		}
		r.idle = float64(r.asked.Load()-before) / time.Since(began).Seconds()
		leave()
		for range idleWaiters {
			if err := <-ended; errors.Is(err, errTwo) {
				return err
			}
		}
		return release()
	})
}
