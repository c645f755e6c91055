package main

import (
	"context"
	"time"
)

const (
	pairWarmUps = 5
	pairs       = 80
	farPairs    = 20
)

// roundTrips are what a link adds; the first adds no delay.
var roundTrips = [...]time.Duration{0, time.Millisecond, 10 * time.Millisecond}

func (r *rival) measurePair(ctx context.Context) error {
	return r.takePairs(ctx, 0, pairs)
}

// takePairs acquires and releases a free key.
func (r *rival) takePairs(ctx context.Context, far, n int) (err error) {
	all, closeAll, err := r.processes(ctx, 1, setting{over: newLink(roundTrips[far])})
	if err != nil {
		return err
	}
	defer func() {
		if closed := closeAll(); err == nil {
			err = closed
		}
	}()
	ctx, limited := context.WithCancel(ctx) // no deadline: drivers give up some time before one
	defer limited()
	defer time.AfterFunc(crowdLimit, limited).Stop()
	for i := range pairWarmUps + n {
		start := time.Now()
		release, err := all[0].acquire(ctx, "free")
		if err == nil {
			err = release()
		}
		if err != nil && ctx.Err() == nil {
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
}

// measureNetwork takes pairs and hand-overs to one waiter with a network between.
func (r *rival) measureNetwork(ctx context.Context) error {
	for far := 1; far < len(roundTrips); far++ {
		if err := r.takePairs(ctx, far, farPairs); err != nil {
			return err
		}
		c := crowd{waiters: 1, samples: farHandOvers, setting: setting{over: newLink(roundTrips[far])}}
		took, err := c.handOvers(ctx, r)
		if err != nil {
			return err
		}
		r.far[far] = append(r.far[far], took...)
	}
	return nil
}
