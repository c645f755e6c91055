package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

const (
	engineTurns = 121
	engineEach  = 4000 // pairs, hand-offs or hand-overs in a turn: some milliseconds
	manyLeases  = 10_000
)

// engine measures the library without a database, which is what it adds to any store.
func engine(ctx context.Context) ([]figure, error) {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // nothing is held any more
	pairs := func() error { return repeat(engineEach, func() error { return pair(ctx, client, "key") }) }

	turns := raceOf(pairs,
		func() error { handOffs(engineEach); return nil },
		func() error { return contend(ctx, client, engineEach) })
	if err := turns.run(5, engineTurns); err != nil {
		return nil, err
	}
	mallocs, err := allocations(10_000, func() error { return pair(ctx, client, "key") })
	if err != nil {
		return nil, err
	}
	queue := 1 / turns.ratioByTurn(2)
	idle, err := held(ctx)
	if err != nil {
		return nil, err
	}
	return append([]figure{
		{"free pair, in memory", turns.ratioByTurn(1), "%.1f ×", 15, atMost, "one hand-off between two goroutines"},
		{"free pair, in memory", turns.ratioByTurn(1) / 2, "%.1f ×", 0, noTarget, "that hand-off, there and back"},
		{"allocations of that pair", mallocs, "%.0f", 16, atMost, "counted"},
		{"hand-over through the local queue, in memory", queue, "%.2f ×", 2, atMost, "that pair"},
	}, idle...), nil
}

// pair acquires a key and releases it.
func pair(ctx context.Context, c *mongolock.Client, key string) error {
	lease, err := c.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return lease.Release()
}

func repeat(n int, f func() error) error {
	for range n {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// handOffs passes control n times between two goroutines, there and back, over unbuffered
// channels.
func handOffs(n int) {
	there, back := make(chan struct{}), make(chan struct{})
	go func() {
		for range there {
			back <- struct{}{}
		}
	}()
	for range n / 2 {
		there <- struct{}{}
		<-back
	}
	close(there)
}

// contend has two goroutines acquire the key in turn: every grant but the first is a
// hand-over through the local queue.
func contend(ctx context.Context, c *mongolock.Client, n int) error {
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		wg.Go(func() { errs[i] = repeat(n/2, func() error { return pair(ctx, c, "key") }) })
	}
	wg.Wait()
	if errs[0] != nil {
		return errs[0]
	}
	return errs[1]
}

// allocations returns how many allocations one run of f makes, background work included.
func allocations(n int, f func() error) (float64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := repeat(n, f)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n), err
}

// held measures what many leases cost while no renewal is due.
func held(ctx context.Context) ([]figure, error) {
	before := runtime.NumGoroutine()
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.TTL(time.Hour))
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // leases in memory, gone with it
	for i := range manyLeases {
		if _, err := client.Acquire(ctx, fmt.Sprint("key-", i)); err != nil {
			return nil, err
		}
	}
	runtime.GC()
	const span = 2 * time.Second
	var shares []float64
	for range 3 {
		used := cpuTime()
		<-time.After(span)
		shares = append(shares, float64(cpuTime()-used)/float64(span)*100)
	}
	return []figure{
		{"10,000 held leases between renewals", median(shares), "%.2f %%", 2, atMost, "one core"},
		{"goroutines for them", float64(runtime.NumGoroutine() - before), "%.0f", 1, atMost, "counted"},
	}, nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
