package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
)

const (
	parts256     = 256
	partWorkers  = 5
	partSettle   = time.Second
	partPatience = time.Minute
	partName     = "orders"
)

// A partFleet is what is known of processes that share partitions: when each partition was without
// work.
type partFleet struct {
	mu      sync.Mutex // protects what follows
	working map[int]int
	left    map[int]time.Time
	gaps    []float64 // milliseconds
	moves   int
}

func newPartFleet() *partFleet {
	return &partFleet{working: make(map[int]int), left: make(map[int]time.Time)}
}

func (f *partFleet) work(ctx context.Context, p assign.Partition) error {
	f.mu.Lock()
	f.working[p.ID]++
	f.moves++
	if at, is := f.left[p.ID]; is {
		f.gaps = append(f.gaps, time.Since(at).Seconds()*1000)
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.working[p.ID]--
	f.left[p.ID] = time.Now()
	f.mu.Unlock()
	return ctx.Err()
}

// has returns how many partitions are worked on.
func (f *partFleet) has() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, working := range f.working {
		n += working
	}
	return n
}

// start runs a worker on a client of its own, and returns what ends it.
func (f *partFleet) start(l *lab, in string, sent *atomic.Int64, opts ...mongolock.ClientOption) (stop func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	client, over := l.client(l.connect(sent), in, opts...), make(chan error, 1)
	go func() {
		over <- assign.Run(ctx, client, partName, parts256, f.work, assign.Settle(partSettle), assign.Drain(partPatience), assign.WithLogger(silent))
	}()
	return func() {
		cancel()
		check(<-over)
		check(client.Close())
	}
}

// spread waits until so many workers have a fair share each.
func spread(l *lab, by *mongolock.Client, workers int) {
	var shares map[string]int
	for began := time.Now(); time.Since(began) < partPatience; <-time.After(300 * time.Millisecond) { // a read of all partitions is not free
		shares = make(map[string]int)
		for _, p := range must(assign.Look(l.ctx, by, partName)).Partitions {
			shares[p.Worker]++
		}
		least, most := parts256, 0
		for _, n := range shares {
			least, most = min(least, n), max(most, n)
		}
		if len(shares) == workers && most-least <= 1 && shares[""] == 0 {
			return
		}
	}
	check(fmt.Errorf("%d workers do not share the partitions after %v: %v", workers, partPatience, shares))
}

// sharedWork measures how long a partition is without work while five processes that share 256 are
// replaced one after the other, and what that costs; and how long after one of them was killed.
func sharedWork(l *lab) []figure {
	watcher, _ := l.locks("partitions")
	f := newPartFleet()
	var sent atomic.Int64
	var stops []func()
	for range partWorkers {
		stops = append(stops, f.start(l, "partitions", &sent))
	}
	spread(l, watcher, partWorkers)
	<-time.After(2 * partSettle)
	f.mu.Lock()
	f.moves, f.gaps = 0, nil
	f.mu.Unlock()
	before := sent.Load()
	for range partWorkers {
		stops = append(stops, f.start(l, "partitions", &sent))
		<-time.After(partSettle / 3)
		stops[0]()
		stops = stops[1:]
		spread(l, watcher, partWorkers)
	}
	commands := float64(sent.Load() - before)
	f.mu.Lock()
	moves, gaps := float64(f.moves), slices.Sorted(slices.Values(f.gaps))
	f.mu.Unlock()
	for _, stop := range stops {
		stop()
	}

	killed := afterAKill(l)
	return []figure{
		{"a partition is without work while five processes are replaced", median(gaps), "%.0f ms", 200, atMost, "256 partitions, each process started before one is stopped; median"},
		{"the same, 99 of 100", gaps[len(gaps)*99/100], "%.0f ms", 0, noTarget, ""},
		{"moves in such a deploy, for each partition", moves / parts256, "%.2f", 1.1, atMost, "each process's share moves once"},
		{"commands for each move", commands / moves, "%.1f", 0, noTarget, "of all processes, reads of who works and renewals included"},
		{"after kill -9, until all its partitions are worked on", killed, "%.1f s", (*lasting + time.Second).Seconds(), atMost, "from the kill; its TTL and a second"},
	}
}

// afterAKill kills one of five processes.
func afterAKill(l *lab) (seconds float64) {
	f := newPartFleet()
	watcher, _ := l.locks("killed")
	fifth := l.startChild("shares")
	fifth.expect("works")
	for range partWorkers - 1 {
		defer f.start(l, "killed", nil, mongolock.TTL(*lasting))()
	}
	spread(l, watcher, partWorkers)
	<-time.After(*lasting)
	began := time.Now()
	fifth.kill()
	for f.has() < parts256 {
		if time.Since(began) > partPatience {
			check(fmt.Errorf("only %d partitions are worked on", f.has()))
		}
		<-time.After(5 * time.Millisecond)
	}
	return time.Since(began).Seconds()
}

// runShares is the process that is killed.
func runShares(l *lab, hear *bufio.Scanner) {
	f := newPartFleet()
	stop := f.start(l, "killed", nil, mongolock.TTL(*lasting))
	for f.has() == 0 {
		<-time.After(5 * time.Millisecond)
	}
	say("works")
	hear.Scan()
	stop()
}
