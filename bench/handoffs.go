package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
)

const (
	localRounds   = 600
	localPause    = 2 * time.Millisecond // in which the other goroutine joins the queue
	handOverTurns = 40
	pollPause     = 100 * time.Millisecond

	crowdOpens   = 30 * time.Second // for each to have its cursor, if the server has them: until then waiters are passed
	crowdSettles = 2 * time.Second  // and then
	crowdLasts   = 8 * time.Second
	crowdWork    = 5 * time.Millisecond

	deploys      = 20
	deployWarmUp = 300 * time.Millisecond
)

// betweenProcesses measures the time from a release in one process to the grant in another, which
// waits in Acquire, or calls TryAcquire every 100 ms; and a handoff by hand beside a pair by hand.
func betweenProcesses(l *lab) []figure {
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
		{"handoff between processes", waited / pair, "%.2f ×", 1.4, atMost, "an uncontended pair"},
		{"the same by hand", byHand.ratio(1), "%.2f ×", 0, noTarget, "an uncontended pair by hand: the server's share"},
		{"handoff between processes", waited / byHand.median(0), "%.2f ×", 1.1, atMost, "the same by hand, shortly before"},
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

// insideAProcess measures a handoff between two goroutines, from the call of Release to
// the other's grant, beside one findOneAndUpdate of such a document in the same
// collection. All start after the same pause, because a processor that has slept takes longer.
func insideAProcess(l *lab) []figure {
	client, hand := l.locks("local")
	lease, held, count := l.acquire(client, "key"), hand.lock(l.ctx, "handed"), 0
	hand.lock(l.ctx, "touched")
	paused := func(run func()) contestant {
		return func() float64 {
			<-time.After(localPause)
			return timed(run)()
		}
	}
	turns := raceOf(20, localRounds, func() float64 {
		type grant struct {
			lease *mongolock.Lease
			at    time.Time
			err   error
		}
		granted := make(chan grant, 1)
		go func() {
			lease, err := client.Acquire(l.ctx, "key")
			granted <- grant{lease, time.Now(), err}
		}()
		<-time.After(localPause)
		start := time.Now()
		check(lease.Release())
		next := <-granted
		lease = must(next.lease, next.err)
		return next.at.Sub(start).Seconds()
	},
		paused(func() { held.handOver(l.ctx) }),
		paused(func() { count++; hand.touch(l.ctx, "touched", count) }))
	check(lease.Release())
	return []figure{
		{"handoff inside a process", turns.ratio(2), "%.2f ×", 1.2, atMost, "a bare findOneAndUpdate"},
		{"the same by hand", turns.median(1) / turns.median(2), "%.2f ×", 0, noTarget, "that findOneAndUpdate: the server's share"},
	}
}

// A crowdRun is what clients, each with a driver of its own, did while they took one key in a loop.
type crowdRun struct {
	grants   float64 // a second
	commands float64 // a grant, those of all clients together
	even     float64 // Jain's index of the clients' grants: 1 if all had as many
	uneven   float64 // the wait that one of a hundred exceeds, divided by the median
}

// crowd measures what a crowd on one key costs, and whether its members are served alike.
func crowd(l *lab) []figure {
	two, many := crowdOf(l, 2), crowdOf(l, 32)
	return []figure{
		{"2 processes take one key in a loop, commands a grant", two.commands, "%.1f", 5, atMost, fmt.Sprintf("of both together; Jain's index %.3f", two.even)},
		{"the same, grants a second", two.grants, "%.0f", 0, noTarget, fmt.Sprintf("the wait at the 99th percentile %.1f × the median", two.uneven)},
		{"32 processes take one key in a loop, commands a grant", many.commands, "%.1f", 7, atMost, "of all together"},
		{"the same, grants a second", many.grants / two.grants, "%.2f ×", 0.8, atLeast, "those of 2 processes"},
		{"the same, Jain's index", many.even, "%.3f", 0.99, atLeast, "1: all had as many"},
		{"the same, wait at the 99th percentile", many.uneven, "%.1f ×", 2, atMost, "its median"},
	}
}

func crowdOf(l *lab, n int) crowdRun {
	name := fmt.Sprint("crowd", n)
	ctx, stop := context.WithCancel(l.ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	sent := make([]traffic, n)
	each := make([]atomic.Int64, n)
	var mu sync.Mutex // protects waits
	var waits []float64
	for i := range n {
		client := l.client(l.connect(&sent[i]), name)
		all.Go(func() {
			for {
				asked := time.Now()
				lease, err := client.Acquire(ctx, "key")
				if ctx.Err() != nil {
					return
				}
				check(err)
				mu.Lock()
				waits = append(waits, time.Since(asked).Seconds())
				mu.Unlock()
				<-time.After(crowdWork)
				check(lease.Release())
				each[i].Add(1)
			}
		})
	}
	for i, opened := 0, time.Now(); i < n; i++ {
		for sent[i].reads.Load() == 0 && time.Since(opened) < crowdOpens {
			check(l.ctx.Err())
			<-time.After(10 * time.Millisecond)
		}
	}
	<-time.After(crowdSettles)
	began, commands := time.Now(), -allOf(sent)
	before := make([]int64, n)
	for i := range each {
		before[i] = each[i].Load()
	}
	mu.Lock()
	waits = nil
	mu.Unlock()
	<-time.After(crowdLasts)
	var sum, squares float64
	for i := range each {
		had := float64(each[i].Load() - before[i])
		sum, squares = sum+had, squares+had*had
	}
	commands += allOf(sent)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(waits)
	return crowdRun{
		grants:   sum / time.Since(began).Seconds(),
		commands: float64(commands) / sum,
		even:     sum * sum / (float64(n) * squares),
		uneven:   waits[len(waits)*99/100] / median(waits),
	}
}

func allOf(sent []traffic) (commands int64) {
	for i := range sent {
		commands += sent[i].commands.Load()
	}
	return commands
}

// deadInLine measures how long a key stays free that is offered to a process that died.
func deadInLine(l *lab) []figure {
	const name = "dead"
	holder, next := l.client(l.driver, name), l.client(l.connect(nil), name)
	lease := l.acquire(holder, "key")
	raw := must(mongostore.New(locksOf(l.driver, name)))
	_, err := raw.Acquire(l.ctx, store.Claim{
		Ref: store.Ref{Key: "key", ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: time.Minute, Place: store.NewPlace(store.Exclusive, 1, 1, "dead"),
	})
	if err == nil {
		check(errors.New("a key that is held was granted"))
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
	seconds := (<-granted).Sub(released).Seconds()
	return []figure{{"the first in line is dead, until the next grant", seconds, "%.2f s", 1.2, atMost, "from a release"}}
}

// rollingDeploys measures for how long nobody leads while processes are replaced one after the
// other: each is started, and then the one before it is stopped. Each is a client of its own.
func rollingDeploys(l *lab) []figure {
	l.locks("deploys") // with its indexes
	var mu sync.Mutex  // protects what follows
	var left time.Time
	var gaps []float64
	leads := make(chan struct{}, 1)
	work := func(ctx context.Context, _ leader.Term) error {
		mu.Lock()
		if !left.IsZero() {
			gaps = append(gaps, time.Since(left).Seconds()*1000)
		}
		mu.Unlock()
		leads <- struct{}{}
		<-ctx.Done()
		mu.Lock()
		left = time.Now()
		mu.Unlock()
		return ctx.Err()
	}
	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(l.ctx)
		client, over := l.client(l.connect(nil), "deploys"), make(chan error, 1)
		go func() {
			over <- leader.Run(ctx, client, "office", work, leader.AwaitSuccessor(time.Minute),
				leader.Warm(func(context.Context) error { <-time.After(deployWarmUp); return nil }))
		}()
		return func() {
			cancel()
			check(<-over)
			check(client.Close())
		}
	}
	stop := start() // the last one is not stopped: it would await a successor
	<-leads
	for range deploys {
		next := start()
		stop()
		<-leads
		stop = next
	}
	return []figure{
		{"nobody leads while a process is replaced", median(gaps), "%.0f ms", 50, atMost,
			fmt.Sprintf("a rolling deploy, `AwaitSuccessor`; the longest of %d: %.0f ms", deploys, slices.Max(gaps))},
	}
}
