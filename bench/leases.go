package main

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
)

const (
	renewedLeases = 1000
	renewalRounds = 5
	renewedTTL    = 17200 * time.Millisecond // just over 2^34 ns: a round then renews all that is due within half a period
	holders       = 2                        // processes, of the part about many leases
)

// A bulk is a bulk of renewals: how many leases it renewed, and how long it took.
type bulk struct {
	count int
	took  time.Duration
}

// A bulks is an observer that reports them.
type bulks struct{ done chan bulk }

func (b bulks) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	if of.Op != mongolock.OpRenew {
		return ctx, func(mongolock.Outcome) {}
	}
	start := time.Now()
	return ctx, func(o mongolock.Outcome) { b.done <- bulk{o.Count, time.Since(start)} }
}

// round waits for bulks that together renew so many leases.
func (b bulks) round(leases int) (round []bulk) {
	enough := time.After(30 * time.Second)
	for leases > 0 {
		select {
		case one := <-b.done:
			round = append(round, one)
			leases -= one.count
		case <-enough:
			check(fmt.Errorf("%d leases were not renewed within 30 s", leases))
		}
	}
	return round
}

// renewals compares a round of renewals, as the engine sends it in bulks, with the same
// bulks by hand, which are sent in the pauses. Both collections have the TTL index, because a
// renewal moves an entry of it.
func renewals(l *lab) []figure {
	watch := bulks{make(chan bulk, 1000)}
	client, _ := l.locks("renewals", mongolock.TTL(renewedTTL), mongolock.WithObserver(watch))
	other, hand := l.locks("renewals_by_hand")
	check(other.EnsureIndex(l.ctx))
	same := hand.hold(l.ctx, renewedLeases)
	const workers = 20
	sideBySide(workers, func(w int) {
		for i := w; i < renewedLeases; i += workers {
			l.acquire(client, fmt.Sprint("key-", i))
		}
	})
	var ratios []float64
	var sent int
	for range renewalRounds {
		var took, byHand time.Duration
		round := watch.round(renewedLeases)
		for _, one := range round {
			start := time.Now()
			same.renew(l.ctx, one.count)
			took, byHand = took+one.took, byHand+time.Since(start)
		}
		ratios = append(ratios, took.Seconds()/byHand.Seconds())
		sent += len(round)
	}
	return []figure{
		{"1,000 leases renewed", median(ratios), "%.2f ×", 1.2, atMost, fmt.Sprintf("the same bulks by hand; %.1f a round", float64(sent)/renewalRounds)},
	}
}

// manyHeld measures what it costs to hold many leases in two processes, and what is left when
// one of them is killed.
func manyHeld(l *lab) []figure {
	ttl, each := *lasting, *leases/holders
	var all []*child
	for i := range holders {
		one := l.startChild("leases")
		one.say(fmt.Sprintf("%d %d %v", i, each, ttl))
		all = append(all, one)
	}
	for _, one := range all {
		one.expect("holds")
	}
	<-time.After(ttl * 6 / 5) // until those that were taken at about the same time are renewed together
	for _, one := range all {
		one.say("count")
	}
	<-time.After(2 * ttl)
	var most, bytes, busy float64
	for _, one := range all {
		var rate, memory, processor float64
		var lost int
		one.say("tell")
		one.expect("rate", &rate, &memory, &processor, &lost)
		if lost > 0 {
			check(fmt.Errorf("%d leases were lost", lost))
		}
		most, bytes, busy = max(most, rate), max(bytes, memory), max(busy, processor)
	}
	free := afterACrash(l, all[0], each, ttl)
	commands := takeOver(l, min(each, 100))
	return []figure{
		{fmt.Sprintf("%d leases in %d processes, commands a second", *leases, holders), most, "%.1f", 0, noTarget, fmt.Sprintf("of each, TTL %.0f s", ttl.Seconds())},
		{"memory of such a lease", bytes, "%.0f B", 0, noTarget, "live heap"},
		{"processor of such a process", 100 * busy, "%.1f %%", 2, atMost, "one core"},
		{"after kill -9, until all its keys are free", free, "%.1f s", (ttl + time.Second).Seconds(), atMost, "from the kill"},
		{"commands for each that another process takes then", commands, "%.1f", 0, noTarget, "the first hundred"},
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
	var sent traffic
	client := l.client(l.connect(&sent), "leases", mongolock.WithoutFeed())
	for i := range keys {
		l.acquire(client, fmt.Sprintf("0/%d", i))
	}
	return float64(sent.commands.Load()) / float64(keys)
}

func runLeases(l *lab, hear *bufio.Scanner) {
	var sent traffic
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
			began, counted, worked = time.Now(), sent.commands.Load(), computed()
		case "tell":
			past := time.Since(began).Seconds()
			rate, busy := float64(sent.commands.Load()-counted)/past, (computed()-worked).Seconds()/past
			lost := 0
			for _, lease := range all {
				if lease.Err() != nil {
					lost++
				}
			}
			say("rate", rate, (live()-before)/float64(leases), busy, lost)
		}
	}
}
