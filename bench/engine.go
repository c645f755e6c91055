package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

const (
	engineTurns = 121
	engineEach  = 4000 // pairs, transfers or handoffs in a turn: some milliseconds
	manyLeases  = 10_000
)

// engine measures the library without a database, which is what it adds to any store.
func engine(l *lab) []figure {
	client := must(mongolock.NewWithStore(memstore.New()))
	defer client.Close() //nolint:errcheck // nothing is held any more
	pair := func() { l.pair(client, "key") }
	turns := raceOf(5, engineTurns, timed(repeat(engineEach, pair)),
		timed(func() { handOffs(engineEach) }),
		// Two goroutines acquire the key in turn: every grant but the first is a handoff through the local queue.
		timed(func() { sideBySide(2, func(int) { repeat(engineEach/2, pair)() }) }))
	return append([]figure{
		{"free pair, in memory", turns.ratioByTurn(1), "%.1f ×", 0, noTarget, "one transfer between two goroutines"},
		{"free pair, in memory", turns.ratioByTurn(1) / 2, "%.1f ×", 0, noTarget, "that transfer, there and back"},
		{"allocations of that pair", allocations(10_000, pair), "%.0f", 25, atMost, "counted"},
		{"handoff through the local queue, in memory", 1 / turns.ratioByTurn(2), "%.2f ×", 2, atMost, "that pair"},
	}, held(l)...)
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

// held measures what many leases cost while no renewal is due.
func held(l *lab) []figure {
	before := runtime.NumGoroutine()
	client := must(mongolock.NewWithStore(memstore.New(), mongolock.TTL(time.Hour)))
	defer client.Close() //nolint:errcheck // leases in memory, gone with it
	for i := range manyLeases {
		l.acquire(client, fmt.Sprint("key-", i))
	}
	runtime.GC()
	const span = 2 * time.Second
	var shares []float64
	for range 3 {
		used := computed()
		<-time.After(span)
		shares = append(shares, float64(computed()-used)/float64(span)*100)
	}
	return []figure{
		{"10,000 held leases between renewals", median(shares), "%.2f %%", 2, atMost, "one core"},
		{"goroutines for them", float64(runtime.NumGoroutine() - before), "%.0f", 1, atMost, "counted"},
	}
}
