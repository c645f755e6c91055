package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
)

// A herd is several clients, each with a driver of its own, that take one key in a loop.
const (
	herdSettles = 20 * time.Second // the cursors of 32 processes open at once, and until then waiters are passed
	herdLasts   = 8 * time.Second
	herdWork    = 5 * time.Millisecond
	herdOthers  = 40 // clients that wait for keys of their own meanwhile
)

// A herdRun is what a herd did while it was measured.
type herdRun struct {
	grants   float64 // a second
	commands float64 // a grant, those of all clients together
	even     float64 // Jain's index of the clients' grants: 1 if all had as many
	others   float64 // getMore a second of each client that waits for another key
}

// herd measures what a crowd costs, and whether its members are served alike.
func herd(l *lab) []figure {
	two, eight, many := herdOf(l, 2, 0), herdOf(l, 8, 0), herdOf(l, 32, 0)
	beside := herdOf(l, 2, herdOthers)
	dead := deadInLine(l)
	return []figure{
		{"32 processes in a loop on one key, commands a grant", many.commands, "%.1f", 7, atMost, fmt.Sprintf("of all together; %.1f with 8 processes, %.1f with 2", eight.commands, two.commands)},
		{"the same, grants a second", many.grants / two.grants, "%.2f ×", 0.7, atLeast, fmt.Sprintf("those of 2 processes, %.0f; 8 have %.0f. On SecantusDB every cursor that waits keeps a processor busy", two.grants, eight.grants)},
		{"the same, Jain's index", many.even, "%.3f", 0.98, atLeast, "1 if all had as many grants"},
		{"40 processes that wait for other keys, getMore a second", beside.others, "%.2f", 0.5, atMost, fmt.Sprintf("each, beside a key that 2 hand to each other %.0f times a second", beside.grants)},
		{"the first in line is dead, seconds to the next grant", dead, "%.2f", 1.2, atMost, "from a release; the second in line lives"},
	}
}

func herdOf(l *lab, n, others int) (run herdRun) {
	name := fmt.Sprint("herd", n, "-", others)
	ctx, stop := context.WithCancel(l.ctx)
	defer stop()
	var waiting sync.WaitGroup
	var more atomic.Int64
	for i := range others {
		driver := l.watched(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "getMore" {
				more.Add(1)
			}
		}})
		client, key := l.client(driver, name), fmt.Sprint("other", i)
		l.acquire(l.client(l.driver, name), key, mongolock.TTL(time.Hour))
		waiting.Go(func() { _, _ = client.Acquire(ctx, key) })
	}
	var sent atomic.Int64
	each := make([]atomic.Int64, n)
	for i := range n {
		client := l.client(l.connect(&sent), name)
		waiting.Go(func() {
			for {
				lease, err := client.Acquire(ctx, "key")
				if ctx.Err() != nil {
					return
				}
				check(err)
				<-time.After(herdWork)
				check(lease.Release())
				each[i].Add(1)
			}
		})
	}
	<-time.After(herdSettles)
	began, sentBefore, moreBefore := time.Now(), sent.Load(), more.Load()
	before := make([]int64, n)
	for i := range each {
		before[i] = each[i].Load()
	}
	<-time.After(herdLasts)
	lasted := time.Since(began).Seconds()
	var sum, squares float64
	for i := range each {
		had := float64(each[i].Load() - before[i])
		sum, squares = sum+had, squares+had*had
	}
	run = herdRun{grants: sum / lasted, commands: float64(sent.Load()-sentBefore) / sum, even: sum * sum / (float64(n) * squares)}
	if others > 0 {
		run.others = float64(more.Load()-moreBefore) / lasted / float64(others)
	}
	stop()
	waiting.Wait()
	return run
}

// deadInLine measures how long a key stays free that is offered to a process that died.
func deadInLine(l *lab) (seconds float64) {
	const name = "herd-dead"
	holder, next := l.client(l.driver, name), l.client(l.connect(nil), name)
	lease := l.acquire(holder, "key")
	raw := must(mongostore.New(locksOf(l.driver, name)))
	_, err := raw.Acquire(l.ctx, store.Claim{
		Ref: store.Ref{Key: "key", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: time.Minute, Place: store.NewPlace(store.Exclusive, 1, 1, "dead"),
	})
	if err == nil {
		check(fmt.Errorf("a key that is held was granted"))
	}
	granted := make(chan time.Time)
	go func() {
		check(must(next.Acquire(l.ctx, "key")).Release())
		granted <- time.Now()
	}()
	for len(must(holder.Inspect(l.ctx, "key")).Line) < 2 {
		<-time.After(5 * time.Millisecond)
	}
	<-time.After(time.Second)
	released := time.Now()
	check(lease.Release())
	return (<-granted).Sub(released).Seconds()
}
