package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	contending     = 8 // processes that want one key, all the time
	contendLasts   = 1500 * time.Millisecond
	contendSettles = 500 * time.Millisecond
)

// measureContended lets processes take one key and give it back without any pause.
func (r *rival) measureContended(ctx context.Context) error {
	return r.with(ctx, contending, func(all []locks) error {
		key := rand.Text()
		for _, one := range all { // so that each is connected
			if err := one.pair(ctx, key); err != nil {
				return err
			}
		}
		ctx, over := context.WithCancel(ctx)
		defer over()
		counts, errs := make([]float64, len(all)), make([]error, len(all))
		var inside atomic.Int32
		var counting atomic.Bool
		var workers sync.WaitGroup
		for i, by := range all {
			workers.Go(func() { counts[i], errs[i] = contend(ctx, by, key, &inside, &counting) })
		}
		<-time.After(contendSettles)
		began := time.Now()
		counting.Store(true)
		<-time.After(contendLasts)
		counting.Store(false)
		lasted := time.Since(began).Seconds()
		over()
		workers.Wait()
		var grants float64
		for _, n := range counts {
			grants += n
		}
		r.grants = append(r.grants, grants/lasted)
		r.fairness = append(r.fairness, jain(counts))
		return errors.Join(errs...)
	})
}

func contend(ctx context.Context, by locks, key string, inside *atomic.Int32, counting *atomic.Bool) (grants float64, err error) {
	for {
		release, err := by.acquire(ctx, key)
		switch {
		case err != nil && ctx.Err() != nil:
			return grants, nil
		case err != nil:
			return grants, err
		}
		if inside.Add(1) > 1 {
			return grants, errTwo
		}
		if counting.Load() {
			grants++
		}
		inside.Add(-1)
		if err := release(); err != nil {
			return grants, err
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
