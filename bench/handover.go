package main

import (
	"bufio"
	"context"
	"math/rand/v2"
	"time"

	"github.com/mongolock/mongolock"
)

const (
	handOverTurns = 40
	pollPause     = 100 * time.Millisecond
)

// handOver measures the time from a release in one process to the grant in another, which
// waits in Acquire, or calls TryAcquire every 100 ms.
func handOver(ctx context.Context, l *lab) (figures []figure, err error) {
	client, hand, err := l.locks("handover")
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what is left runs out
	if err := hand.makeNotices(ctx); err != nil {
		return nil, err
	}
	other, err := startChild(ctx, "waiter", l.uri)
	if err != nil {
		return nil, err
	}
	defer func() {
		if ended := other.end(); err == nil {
			err = ended
		}
	}()
	byHand, err := hand.handOver(ctx, other) // first, as the other process then closes its cursor: one that waits keeps a processor busy on SecantusDB
	if err != nil {
		return nil, err
	}
	var free, waited, polled []float64
	for i := range 3 + handOverTurns {
		for range 3 {
			start := time.Now()
			if err := pair(ctx, client, "free"); err != nil {
				return nil, err
			}
			free = append(free, time.Since(start).Seconds())
			took, err := handOverOnce(ctx, client, other, "wait")
			if err != nil {
				return nil, err
			}
			waited = append(waited, took.Seconds())
		}
		took, err := handOverOnce(ctx, client, other, "poll")
		if err != nil {
			return nil, err
		}
		polled = append(polled, took.Seconds())
		if i == 2 { // so far was the warm-up
			free, waited, polled = nil, nil, nil
		}
	}
	return []figure{
		{"hand-over between processes", median(waited) / median(free), "%.2f ×", 1.4, atMost, "a free pair"},
		{"the same by hand", byHand, "%.2f ×", 0, noTarget, "a free pair by hand: a delete and an insert side by side, a cursor's answer, a claim; the server's share of it"},
		{"hand-over between processes", median(polled) / median(waited), "%.1f × faster", 6, atLeast, "asking every 100 ms"},
	}, nil
}

func handOverOnce(ctx context.Context, client *mongolock.Client, other *child, how string) (time.Duration, error) {
	lease, err := client.TryAcquire(ctx, how)
	if err != nil {
		return 0, err
	}
	if err := other.say(how); err != nil {
		return 0, err
	}
	if err := other.expect("asking"); err != nil {
		return 0, err
	}
	pause := 20 * time.Millisecond
	if how == "poll" {
		pause += pollPause // so that it has asked at least once, and is anywhere between two calls
	} else if err := untilWanted(ctx, client, how); err != nil {
		return 0, err
	}
	<-time.After(pause + rand.N(pollPause))
	released := time.Now()
	if err := lease.Release(); err != nil {
		return 0, err
	}
	var granted int64
	if err := other.expect("granted", &granted); err != nil {
		return 0, err
	}
	return time.Unix(0, granted).Sub(released), other.expect("free")
}

// untilWanted returns when the word of a waiter stands in the record of key.
func untilWanted(ctx context.Context, client *mongolock.Client, key string) error {
	for {
		status, err := client.Inspect(ctx, key)
		if err != nil || status.Wanted {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
}

// runWaiter is the other process. Both processes read the clock of one machine.
func runWaiter(ctx context.Context, uri string, hear *bufio.Scanner) error {
	driver, err := connect(uri, nil)
	if err != nil {
		return err
	}
	defer driver.Disconnect(context.Background())
	client, err := mongolock.New(locksOf(driver, "handover"), quiet)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing is held any more
	hand := &handWaiter{byHand: handOn(locksOf(driver, "handover"))}
	for hear.Scan() {
		how := hear.Text()
		if how == keyByHand {
			if err := hand.wait(ctx); err != nil {
				return err
			}
			continue
		}
		hand.close(ctx)
		say("asking")
		lease, err := ask(ctx, client, how)
		if err != nil {
			return err
		}
		say("granted", time.Now().UnixNano())
		if err := lease.Release(); err != nil {
			return err
		}
		say("free")
	}
	return nil
}

func ask(ctx context.Context, client *mongolock.Client, how string) (*mongolock.Lease, error) {
	if how == "wait" {
		return client.Acquire(ctx, how)
	}
	tick := time.NewTicker(pollPause)
	defer tick.Stop()
	for {
		lease, err := client.TryAcquire(ctx, how)
		if !isHeld(err) {
			return lease, err
		}
		<-tick.C
	}
}
