package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
)

const (
	freePairs     = 2000
	renewedLeases = 1000
	renewalRounds = 6
	renewedTTL    = 17200 * time.Millisecond // just over 2^34 ns: a round then takes all that is due within half a period
	localRounds   = 400
)

// freePair races a lease of a free key against the same two commands by hand, and
// against the barest pair.
func freePair(ctx context.Context, l *lab) ([]figure, error) {
	client, hand, err := l.locks("pairs")
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // nothing is held any more
	lease := func() error { return pair(ctx, client, "lease") }
	byHand := func() error { return hand.pair(ctx, "hand") }
	turns := raceOf(lease, byHand, func() error { return hand.barest(ctx, "barest") })
	if err := turns.run(50, freePairs); err != nil {
		return nil, err
	}
	ours, err := allocations(200, lease)
	if err != nil {
		return nil, err
	}
	theirs, err := allocations(200, byHand)
	return []figure{
		{"free pair", turns.ratio(1), "%.2f ×", 1.10, atMost, "the same two commands by hand"},
		{"free pair", turns.ratio(2), "%.2f ×", 1.25, atMost, "the barest pair of commands"},
		{"allocations of a free pair", ours, "%.0f", 0, noTarget, fmt.Sprintf("by hand: %.0f", theirs)},
	}, err
}

// A round of renewals is how many it renewed and how long it took.
type round struct {
	count int
	took  time.Duration
}

// A rounds observer reports the large ones.
type rounds struct{ done chan round }

func (r rounds) Begin(ctx context.Context, op mongolock.Op, _ string) (context.Context, func(mongolock.Outcome)) {
	if op != mongolock.OpRenew {
		return ctx, func(mongolock.Outcome) {}
	}
	start := time.Now()
	return ctx, func(o mongolock.Outcome) {
		if o.Count >= renewedLeases/2 {
			r.done <- round{o.Count, time.Since(start)}
		}
	}
}

// renewals races a round of renewals, as the keeper sends it, against the same bulk
// by hand, which is sent in the pauses.
func renewals(ctx context.Context, l *lab) ([]figure, error) {
	watch := rounds{make(chan round, 100)}
	client, _, err := l.locks("renewals", mongolock.TTL(renewedTTL), mongolock.WithObserver(watch))
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what is left runs out
	_, hand, err := l.locks("renewals_by_hand")
	if err != nil {
		return nil, err
	}
	bulk, err := hand.hold(ctx, renewedLeases)
	if err != nil {
		return nil, err
	}
	if err := holdMany(ctx, client, renewedLeases); err != nil {
		return nil, err
	}
	var ratios []float64
	least := renewedLeases
	for len(ratios) < renewalRounds {
		var one round
		select {
		case one = <-watch.done:
		case <-time.After(30 * time.Second):
			return nil, errors.New("half of 1,000 leases were not renewed in one round within 30 s")
		}
		start := time.Now()
		if err := bulk.renew(ctx, one.count); err != nil {
			return nil, err
		}
		ratios = append(ratios, one.took.Seconds()/time.Since(start).Seconds())
		least = min(least, one.count)
	}
	return []figure{
		{"1,000 leases renewed", median(ratios), "%.2f ×", 1.2, atMost, fmt.Sprintf("the same bulks by hand; rounds of at least %d", least)},
	}, nil
}

func holdMany(ctx context.Context, client *mongolock.Client, n int) error {
	const workers = 20
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				_, errs[w] = client.Acquire(ctx, fmt.Sprint("key-", i))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// localHandOver races a hand-over between two goroutines, from the call of Release
// to the other's grant, against one findOneAndUpdate.
func localHandOver(ctx context.Context, l *lab) ([]figure, error) {
	client, hand, err := l.locks("local")
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what is left runs out
	if err := hand.barest(ctx, "touched"); err != nil {
		return nil, err
	}
	if _, err := hand.durable.InsertOne(ctx, map[string]any{"_id": "touched", "x": 0}); err != nil {
		return nil, err
	}
	lease, err := client.Acquire(ctx, "key")
	if err != nil {
		return nil, err
	}
	type grant struct {
		lease *mongolock.Lease
		at    time.Time
		err   error
	}
	var took, touched, pinged []float64
	for i := range localRounds {
		granted := make(chan grant, 1)
		go func() {
			lease, err := client.Acquire(ctx, "key")
			granted <- grant{lease, time.Now(), err}
		}()
		<-time.After(2 * time.Millisecond) // until it stands in the queue
		start := time.Now()
		if err := lease.Release(); err != nil {
			return nil, err
		}
		next := <-granted
		if next.err != nil {
			return nil, next.err
		}
		lease = next.lease
		took = append(took, next.at.Sub(start).Seconds())

		start = time.Now()
		if err := hand.touch(ctx, "touched", i); err != nil {
			return nil, err
		}
		touched = append(touched, time.Since(start).Seconds())

		start = time.Now()
		if err := hand.ping(ctx); err != nil {
			return nil, err
		}
		pinged = append(pinged, time.Since(start).Seconds())
	}
	return []figure{
		{"hand-over inside a process", median(took) / median(touched), "%.2f ×", 1.2, atMost, "one bare findOneAndUpdate"},
		{"one bare findOneAndUpdate", median(touched) / median(pinged), "%.1f ×", 0, noTarget, "a ping, which is a trip that writes nothing"},
	}, lease.Release()
}
