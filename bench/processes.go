package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
)

const (
	handOverTurns = 40
	pollPause     = 100 * time.Millisecond

	crowds       = 4
	crowdWaiters = 100
	crowdSettles = 5 * time.Second
)

// handOver measures the time from a release in one process to the grant in another, which
// waits in Acquire, or calls TryAcquire every 100 ms; and a handoff by hand beside a pair
// by hand.
func handOver(l *lab) []figure {
	client, hand := l.locks("handover")
	hand.makeNotices(l.ctx)
	other := l.startChild("waiter")
	// First, as the other process then closes its cursor: one that waits keeps a processor busy on SecantusDB.
	byHand := raceOf(10, handOverTurns, func() float64 { return hand.handOverTo(l.ctx, other) }, timed(func() { hand.pair(l.ctx, "free") }))

	free := timed(func() { l.pair(client, "free") })
	by := func(how string) contestant { return func() float64 { return handOverTo(l, client, other, how) } }
	wait := by("wait")
	turns := raceOf(3, handOverTurns, wait, wait, wait, free, free, free, by("poll"))
	waited, pair, polled := median(slices.Concat(turns[:3]...)), median(slices.Concat(turns[3:6]...)), turns.median(6)
	return []figure{
		{"handoff between processes", waited / pair, "%.2f ×", 1.4, atMost, "a free pair"},
		{"the same by hand", byHand.ratio(1), "%.2f ×", 0, noTarget, "a free pair by hand: a delete and an insert side by side, a cursor's answer, a claim; the server's share of it"},
		{"handoff between processes", polled / waited, "%.1f × faster", 6, atLeast, "asking every 100 ms"},
	}
}

func handOverTo(l *lab, client *mongolock.Client, other *child, how string) (seconds float64) {
	lease := must(client.TryAcquire(l.ctx, how))
	other.say(how)
	other.expect("asking")
	pause := 20 * time.Millisecond
	if how == "poll" {
		pause += pollPause // so that it has asked at least once, and is anywhere between two calls
	} else {
		for len(must(client.Inspect(l.ctx, how)).Line) == 0 { // until it stands in line
			<-time.After(5 * time.Millisecond)
		}
	}
	<-time.After(pause + rand.N(pollPause))
	released := time.Now()
	check(lease.Release())
	return other.granted(released)
}

// runWaiter is the other process.
func runWaiter(l *lab, hear *bufio.Scanner) {
	driver := l.connect(nil)
	client := l.client(driver, "handover")
	hand := &handWaiter{byHand: handOn(locksOf(driver, "handover"))}
	for hear.Scan() {
		how := hear.Text()
		if how == keyByHand {
			hand.wait(l.ctx)
			continue
		}
		hand.close(l.ctx)
		say("asking")
		ask := client.TryAcquire
		if how == "wait" {
			ask = client.Acquire
		}
		lease, err := ask(l.ctx, how)
		for errors.Is(err, mongolock.ErrHeld) {
			<-time.After(pollPause)
			lease, err = ask(l.ctx, how)
		}
		check(err)
		say("granted", time.Now().UnixNano())
		check(lease.Release())
		say("free")
	}
}

// waiting counts the commands of several processes with many waiters each, for one key that this
// process holds, while nothing else is measured. They send hardly any, but on SecantusDB every
// cursor that waits for a wake-up keeps one processor busy (its getMore with awaitData polls),
// which would slow all other figures. A long of 0 leaves it out.
func waiting(l *lab) []figure {
	if *long <= 0 {
		return nil
	}
	client, _ := l.locks("crowd")
	l.acquire(client, "key")
	var all []*child
	for range crowds {
		all = append(all, l.startChild("crowd"))
	}
	<-time.After(crowdSettles)
	for _, one := range all {
		one.say("count")
	}
	began := time.Now()
	<-time.After(*long)
	var most float64
	for _, one := range all {
		var rate float64
		var waiters int
		one.say("tell")
		one.expect("rate", &rate, &waiters)
		if waiters != crowdWaiters {
			check(fmt.Errorf("only %d of %d waiters still wait", waiters, crowdWaiters))
		}
		most = max(most, rate)
	}
	return []figure{
		{"100 waiters on a held key, commands per second", most, "%.3f", 0.1, atMost, fmt.Sprintf("the busiest of 4 processes, over %v", time.Since(began).Round(time.Second))},
	}
}

func runCrowd(l *lab, hear *bufio.Scanner) {
	var sent, waiters atomic.Int64
	ctx, leave := context.WithCancel(l.ctx)
	defer leave()
	client := l.client(l.connect(&sent), "crowd")
	for range crowdWaiters {
		waiters.Add(1)
		go func() {
			defer waiters.Add(-1)
			_, _ = client.Acquire(ctx, "key") // until the process ends
		}()
	}
	var began time.Time
	var before int64
	for hear.Scan() {
		switch hear.Text() {
		case "count":
			began, before = time.Now(), sent.Load()
		case "tell":
			say("rate", float64(sent.Load()-before)/time.Since(began).Seconds(), waiters.Load())
		}
	}
}
