package main

import (
	"context"
	"time"
)

const (
	pairWarmUps  = 5
	pairs        = 80
	farPairs     = 20
	farHandOvers = 6
)

// roundTrips are what a link adds; the first adds no delay.
var roundTrips = [...]time.Duration{0, time.Millisecond, 10 * time.Millisecond}

func (r *rival) measurePair(ctx context.Context) error { return r.takePairs(ctx, 0, pairs) }

// takePairs acquires and releases a free key.
func (r *rival) takePairs(ctx context.Context, far, n int) error {
	return r.with(ctx, 1, setting{over: newLink(roundTrips[far])}, func(all []locks) error {
		ctx, limited := context.WithCancel(ctx) // no deadline: drivers give up some time before one
		defer limited()
		defer time.AfterFunc(crowdLimit, limited).Stop()
		for i := range pairWarmUps + n {
			start := time.Now()
			if err := all[0].pair(ctx, "free"); err != nil && ctx.Err() == nil {
				return err
			}
			if i >= pairWarmUps {
				r.pair[far] = append(r.pair[far], time.Since(start))
			}
			if ctx.Err() != nil { // it took at least so long
				return nil
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

// measureNetwork takes pairs and handoffs to one waiter with a network between.
func (r *rival) measureNetwork(ctx context.Context) error {
	for far := 1; far < len(roundTrips); far++ {
		if err := r.takePairs(ctx, far, farPairs); err != nil {
			return err
		}
		c := crowd{size: crowds[0], setting: setting{over: newLink(roundTrips[far])}}
		c.samples = farHandOvers
		took, err := c.handOvers(ctx, r)
		if err != nil {
			return err
		}
		r.far[far] = append(r.far[far], took...)
	}
	return nil
}
