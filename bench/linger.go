package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
)

const (
	lingerRuns  = 300
	lingerPairs = 128 // as many as one command gives tokens for
	rivalTurns  = 200
)

// lingering compares a pair on a key that its client keeps with a free pair, one trip in 128
// included; and measures how long another process waits for a key that is kept.
func lingering(ctx context.Context, l *lab) (figures []figure, err error) {
	client, _, err := l.locks("linger")
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what is left runs out
	kept := func(key string) error {
		lease, err := client.Acquire(ctx, key, mongolock.Linger(time.Minute))
		if err != nil {
			return err
		}
		return lease.Release()
	}
	for client.Stats().Idle == 0 { // until the client hears of others
		if err := kept("kept"); err != nil {
			return nil, err
		}
	}
	free := func() error { return pair(ctx, client, "free") }
	turns := raceOf(free, func() error {
		for range lingerPairs {
			if err := kept("kept"); err != nil {
				return err
			}
		}
		return nil
	})
	if err := turns.run(20, lingerRuns); err != nil {
		return nil, err
	}
	local := turns.median(1) / lingerPairs

	driver, err := connect(l.uri, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, driver.Disconnect(context.WithoutCancel(ctx))) }()
	rival, err := mongolock.New(locksOf(driver, "linger"), quiet)
	if err != nil {
		return nil, err
	}
	defer rival.Close() //nolint:errcheck // it holds nothing
	var waited []float64
	for range rivalTurns {
		for client.Stats().Idle < 2 { // beside the key of above
			if err := kept("rival"); err != nil {
				return nil, err
			}
		}
		start := time.Now()
		lease, err := rival.Acquire(ctx, "rival")
		if err != nil {
			return nil, err
		}
		waited = append(waited, time.Since(start).Seconds())
		if err := lease.Release(); err != nil {
			return nil, err
		}
	}
	return []figure{
		{"a pair on a key that lingers", turns.median(0) / local, "%.0f × faster", 100, atLeast, fmt.Sprintf("a free pair; %.1f µs, one trip in 128 pairs included", 1e6*local)},
		{"Acquire of a key that lingers in another process", median(waited) / turns.median(0), "%.2f ×", 0, noTarget, "a free pair: the refusal, the notice, the release, the wake-up, the claim"},
	}, nil
}
