package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

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
	var most, bytes, late float64
	for _, one := range holders {
		if err := one.say("tell"); err != nil {
			return nil, err
		}
		var rate, memory float64
		var lost int
		if err := one.expect("rate", &rate, &memory, &lost); err != nil {
			return nil, err
		}
		if lost > 0 {
			return nil, fmt.Errorf("%d leases were lost", lost)
		}
		most, bytes = max(most, rate), max(bytes, memory)
	}
	if late, err = afterACrash(ctx, l, holders[0], leases/processes, ttl); err != nil {
		return nil, err
	}
	kept := fmt.Sprintf("%d leases in %d processes, TTL %v", leases, processes, ttl)
	return []figure{
		{"commands a second of a process that holds " + fmt.Sprint(leases/processes) + " leases by a session", most, "%.2f", 1, atMost, "the busiest; " + kept},
		{"memory of such a lease", bytes, "%.0f B", 1024, atMost, "live heap, driver and queue included"},
		{"after kill -9, until all its keys are free", late, "%.1f s", (ttl + time.Second).Seconds(), atMost, "from the kill; its TTL and a second"},
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
	for hear.Scan() {
		switch hear.Text() {
		case "count":
			began, counted = time.Now(), sent.Load()
		case "tell":
			rate := float64(sent.Load()-counted) / time.Since(began).Seconds()
			lost := 0
			for _, lease := range all {
				if lease.Err() != nil {
					lost++
				}
			}
			say("rate", rate, float64(heap()-before)/float64(leases), lost)
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

// heap is how much is live.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far from 2⁶³
}
