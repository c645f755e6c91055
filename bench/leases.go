package main

import (
	"bufio"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
)

// manyHeld is what it costs to hold many leases in several processes, and what is left when
// one of them is killed.
func manyHeld(l *lab) []figure {
	ttl, each := *lasting, *leases / *processes
	var holders []*child
	for i := range *processes {
		one := l.startChild("leases")
		one.say(fmt.Sprintf("%d %d %v", i, each, ttl))
		holders = append(holders, one)
	}
	for _, one := range holders {
		one.expect("holds")
	}
	<-time.After(ttl * 6 / 5) // until those that were taken at about the same time are renewed together
	for _, one := range holders {
		one.say("count")
	}
	<-time.After(2 * ttl)
	var most, bytes, busy, late float64
	for _, one := range holders {
		var rate, memory, processor float64
		var lost int
		one.say("tell")
		one.expect("rate", &rate, &memory, &processor, &lost)
		if lost > 0 {
			check(fmt.Errorf("%d leases were lost", lost))
		}
		most, bytes, busy = max(most, rate), max(bytes, memory), max(busy, processor)
	}
	free := afterACrash(l, holders[0], each, ttl)
	commands := takeOver(l, min(each, 100))
	holders[1].say("lose")
	holders[1].expect("late", &late)
	kept := fmt.Sprintf("%d leases in %d processes, TTL %v", *leases, *processes, ttl)
	return []figure{
		{"commands a second of a process that holds " + fmt.Sprint(each) + " leases", most, "%.2f", 0, noTarget, "the busiest; " + kept},
		{"memory of such a lease", bytes, "%.0f B", 1024, atMost, "live heap, driver and queue included"},
		{"processor of such a process, when idle", 100 * busy, "%.2f %%", 0, noTarget, "of one core, the busiest"},
		{"after kill -9, until all its keys are free", free, "%.1f s", (ttl + time.Second).Seconds(), atMost, "from the kill; its TTL and a second"},
		{"commands for each of them that another process takes then", commands, "%.2f", 0, noTarget, "one by one, the first hundred"},
		{"after their deadline, until all leases of a process that is cut off have told so", 1000 * late, "%.0f ms", 0, noTarget, ""},
	}
}

// afterACrash kills a process and tells how long its keys stay taken.
func afterACrash(l *lab, one *child, leases int, ttl time.Duration) (seconds float64) {
	client, _ := l.locks("leases")
	began := time.Now()
	one.kill()
	for {
		held := 0
		for status, err := range client.List(l.ctx, "0/") {
			check(err)
			if !status.Free() {
				held++
			}
		}
		switch {
		case held == 0:
			return time.Since(began).Seconds()
		case time.Since(began) > 5*ttl:
			check(fmt.Errorf("%d of %d keys are still held", held, leases))
		}
		<-time.After(100 * time.Millisecond)
	}
}

// takeOver is how many commands a process sends for each key of a dead one that it takes.
func takeOver(l *lab, keys int) (each float64) {
	var sent atomic.Int64
	client := l.client(l.connect(&sent), "leases", mongolock.WithoutFeed())
	for i := range keys {
		l.acquire(client, fmt.Sprintf("0/%d", i))
	}
	return float64(sent.Load()) / float64(keys)
}

func runLeases(l *lab, hear *bufio.Scanner) {
	var sent atomic.Int64
	driver := l.connect(&sent)
	check(driver.Ping(l.ctx, nil))
	var number, leases int
	var long string
	hear.Scan()
	must(fmt.Sscan(hear.Text(), &number, &leases, &long))
	client := l.client(driver, "leases", mongolock.TTL(must(time.ParseDuration(long))), mongolock.WithoutFeed())
	before := live()
	var all []*mongolock.Lease
	const together = 100
	for i := 0; i < leases; i += together {
		var keys []string
		for n := i; n < min(i+together, leases); n++ {
			keys = append(keys, fmt.Sprintf("%d/%d", number, n))
		}
		all = append(all, must(mongolock.AcquireAll(l.ctx, client, keys))...)
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
			say("rate", rate, (live()-before)/float64(leases), busy, lost)
		case "lose": // cut off its driver: no renewal gets through
			check(driver.Disconnect(l.ctx))
			var last time.Time
			for _, lease := range all {
				if end := time.Now().Add(lease.Remaining()); end.After(last) {
					last = end
				}
			}
			for _, lease := range all {
				<-lease.Done()
			}
			say("late", time.Since(last).Seconds())
			return
		}
	}
}
