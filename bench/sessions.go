package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
)

// sessionPair is what a short lease costs in a client that has a session. Each client also holds
// a lease, so that both have something to renew.
func sessionPair(ctx context.Context, l *lab) (figures []figure, err error) {
	const ttl = 3 * time.Second
	clients := make([]func() error, 2)
	for i, opts := range [][]mongolock.ClientOption{{mongolock.WithSession()}, {}} {
		client, _, err := l.locks(fmt.Sprint("session_pairs_", i), append(opts, mongolock.TTL(ttl))...)
		if err != nil {
			return nil, err
		}
		defer client.Close() //nolint:errcheck // what is held runs out
		if _, err := client.Acquire(ctx, "held"); err != nil {
			return nil, err
		}
		clients[i] = func() error { return pair(ctx, client, "lease") }
	}
	<-time.After(ttl) // until the session has begun, and has a lease
	turns := raceOf(clients...)
	if err := turns.run(50, freePairs); err != nil {
		return nil, err
	}
	return []figure{
		{"free pair of a client with a session", turns.ratio(1), "%.3f ×", 1.02, atMost, fmt.Sprintf("one without, in turns with it; %.2f ms", 1000*turns.median(1))},
	}, nil
}

// sessions is what it costs to hold many leases in several processes, each with a session,
// and what is left when one of them is killed.
func sessions(ctx context.Context, l *lab, processes, leases int, ttl time.Duration) (figures []figure, err error) {
	var holders []*child
	defer func() {
		for _, one := range holders {
			_ = one.end() // one was killed
		}
	}()
	for i := range processes {
		one, err := startChild(ctx, "sessions", l.uri)
		if err != nil {
			return nil, err
		}
		holders = append(holders, one)
		if err := one.say(fmt.Sprintf("%d %d %v", i, leases/processes, ttl)); err != nil {
			return nil, err
		}
	}
	for _, one := range holders {
		if err := one.expect("holds"); err != nil {
			return nil, err
		}
	}
	<-time.After(ttl * 6 / 5) // until all leases are under the session
	for _, one := range holders {
		if err := one.say("count"); err != nil {
			return nil, err
		}
	}
	<-time.After(2 * ttl)
	var most, bytes, busy, free, late float64
	for _, one := range holders {
		if err := one.say("tell"); err != nil {
			return nil, err
		}
		var rate, memory, processor float64
		var lost int
		if err := one.expect("rate", &rate, &memory, &processor, &lost); err != nil {
			return nil, err
		}
		if lost > 0 {
			return nil, fmt.Errorf("%d leases were lost", lost)
		}
		most, bytes, busy = max(most, rate), max(bytes, memory), max(busy, processor)
	}
	if free, err = afterACrash(ctx, l, holders[0], leases/processes, ttl); err != nil {
		return nil, err
	}
	commands, err := takeOver(ctx, l, min(leases/processes, 100))
	if err != nil {
		return nil, err
	}
	if err := holders[1].say("lose"); err != nil {
		return nil, err
	}
	if err := holders[1].expect("late", &late); err != nil {
		return nil, err
	}
	kept := fmt.Sprintf("%d leases in %d processes, TTL %v", leases, processes, ttl)
	return []figure{
		{"commands a second of a process that holds " + fmt.Sprint(leases/processes) + " leases by a session", most, "%.2f", 1, atMost, "the busiest; " + kept},
		{"memory of such a lease", bytes, "%.0f B", 1024, atMost, "live heap, driver and queue included"},
		{"processor of such a process, when idle", 100 * busy, "%.2f %%", 0, noTarget, "of one core, the busiest"},
		{"after kill -9, until all its keys are free", free, "%.1f s", (ttl + time.Second).Seconds(), atMost, "from the kill; its TTL and a second"},
		{"commands for each of them that another process takes then", commands, "%.2f", 0, noTarget, "one by one, the first hundred"},
		{"after their deadline, until all leases of a process that is cut off have told so", 1000 * late, "%.0f ms", 0, noTarget, ""},
	}, nil
}

// afterACrash kills a process and tells how long its keys stay taken.
func afterACrash(ctx context.Context, l *lab, one *child, leases int, ttl time.Duration) (seconds float64, err error) {
	client, err := mongolock.New(locksOf(l.driver, "sessions"), quiet)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	began := time.Now()
	if err := one.cmd.Process.Kill(); err != nil {
		return 0, err
	}
	for {
		held := 0
		for status, err := range client.List(ctx, "0/") {
			if err != nil {
				return 0, err
			}
			if !status.Free() {
				held++
			}
		}
		switch {
		case held == 0:
			return time.Since(began).Seconds(), nil
		case time.Since(began) > 5*ttl:
			return 0, fmt.Errorf("%d of %d keys are still held", held, leases)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// takeOver is how many commands a process sends for each key of a dead one that it takes.
func takeOver(ctx context.Context, l *lab, keys int) (each float64, err error) {
	var sent atomic.Int64
	driver, err := connect(l.uri, &sent)
	if err != nil {
		return 0, err
	}
	client, err := mongolock.New(locksOf(driver, "sessions"), quiet, mongolock.WithoutFeed())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close(), driver.Disconnect(ctx)) }()
	for i := range keys {
		if _, err := client.Acquire(ctx, fmt.Sprintf("0/%d", i)); err != nil {
			return 0, err
		}
	}
	return float64(sent.Load()) / float64(keys), nil
}

// lateness is how long after their deadline the last of some leases has told so. Their driver
// is cut off: no renewal gets through.
func lateness(ctx context.Context, driver *mongo.Client, all []*mongolock.Lease) (seconds float64, err error) {
	if err := driver.Disconnect(ctx); err != nil {
		return 0, err
	}
	var last time.Time
	for _, lease := range all {
		if end := time.Now().Add(lease.Remaining()); end.After(last) {
			last = end
		}
	}
	for _, lease := range all {
		<-lease.Done()
	}
	return time.Since(last).Seconds(), nil
}

func runSessions(ctx context.Context, uri string, hear *bufio.Scanner) error {
	var sent atomic.Int64
	driver, err := connect(uri, &sent)
	if err != nil {
		return err
	}
	if err := driver.Ping(ctx, nil); err != nil {
		return err
	}
	var number, leases int
	var long string
	hear.Scan()
	if _, err := fmt.Sscan(hear.Text(), &number, &leases, &long); err != nil {
		return err
	}
	ttl, err := time.ParseDuration(long)
	if err != nil {
		return err
	}
	client, err := mongolock.New(locksOf(driver, "sessions"), quiet, mongolock.WithSession(), mongolock.TTL(ttl), mongolock.WithoutFeed())
	if err != nil {
		return err
	}
	before := heap()
	all, err := takeMany(ctx, client, number, leases)
	if err != nil {
		return err
	}
	say("holds")
	var began time.Time
	var counted int64
	var worked time.Duration
	for hear.Scan() {
		switch hear.Text() {
		case "count":
			began, counted, worked = time.Now(), sent.Load(), computed()
		case "tell":
			past := time.Since(began).Seconds()
			rate, busy := float64(sent.Load()-counted)/past, (computed()-worked).Seconds()/past
			lost := 0
			for _, lease := range all {
				if lease.Err() != nil {
					lost++
				}
			}
			say("rate", rate, float64(heap()-before)/float64(leases), busy, lost)
		case "lose":
			late, err := lateness(ctx, driver, all)
			if err != nil {
				return err
			}
			say("late", late)
			return nil // the driver is gone
		}
	}
	return errors.Join(client.Close(), driver.Disconnect(ctx))
}

// takeMany takes keys a hundred at a time, with one insert each.
func takeMany(ctx context.Context, client *mongolock.Client, number, leases int) (all []*mongolock.Lease, err error) {
	const together = 100
	for i := 0; i < leases; i += together {
		var keys []string
		for n := i; n < min(i+together, leases); n++ {
			keys = append(keys, fmt.Sprintf("%d/%d", number, n))
		}
		taken, err := mongolock.AcquireAll(ctx, client, keys)
		if err != nil {
			return nil, err
		}
		all = append(all, taken...)
	}
	return all, nil
}

// computed is for how long this process was computed.
func computed() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// heap is how much is live.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far from 2⁶³
}
