package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/keep"
)

const (
	freePairs   = 2000
	severalKeys = 10
	severalRuns = 600
	keptRuns    = 300
	keptUses    = 128
	rivalTurns  = 200
)

// pairs measures what one process does with keys that nobody wants at the same time.
func pairs(l *lab) []figure {
	return append(append(freePair(l), several(l)...), kept(l)...)
}

// freePair compares a lease of a free key with the same two commands by hand and with the
// barest pair, and a try of a key that another client holds with the lease. All run in one
// collection, so that all have the index that the first grant made. The pair by hand shows what the
// server needs for the filters and the document, which no library can save.
func freePair(l *lab) []figure {
	client, hand := l.locks("pairs")
	l.acquire(l.client(l.driver, "pairs"), "held")
	turns := raceOf(50, freePairs,
		timed(func() { l.pair(client, "lease") }),
		timed(func() { hand.pair(l.ctx, "hand") }),
		timed(func() { hand.barest(l.ctx, "barest") }),
		timed(func() {
			if _, err := client.TryAcquire(l.ctx, "held"); !errors.Is(err, mongolock.ErrHeld) {
				check(fmt.Errorf("a try of a held key: %w", err))
			}
		}))
	return []figure{
		{"uncontended pair", turns.ratio(1), "%.2f ×", 1.10, atMost, "the same two commands by hand"},
		{"uncontended pair", turns.ratio(2), "%.2f ×", 1.25, atMost, "the barest pair of commands"},
		{"the same two commands by hand", turns.median(1) / turns.median(2), "%.2f ×", 0, noTarget, "that barest pair: the server's share"},
		{"`TryAcquire` of a held key", turns.median(3) / turns.median(0), "%.2f ×", 1, atMost, "an uncontended pair"},
	}
}

// several compares ten free keys that are taken together with one.
func several(l *lab) []figure {
	client, hand := l.locks("several")
	var keys []string
	for i := range severalKeys {
		keys = append(keys, fmt.Sprint("together", i))
	}
	turns := raceOf(50, severalRuns,
		timed(func() {
			leases, err := mongolock.AcquireAll(l.ctx, client, keys)
			check(errors.Join(err, leases.Release()))
		}),
		timed(func() { l.pair(client, "alone") }),
		timed(func() { hand.sideBySide(l.ctx, severalKeys) }))
	return []figure{
		{"ten free keys, taken together and released", turns.ratio(1), "%.2f ×", 2, atMost, "one free key"},
		{"their commands by hand, side by side", turns.ratio(1) / turns.ratio(2), "%.2f ×", 0, noTarget, "one free key: the server's share"},
	}
}

// kept compares a use of a key that is kept with an uncontended pair, and measures how long another process waits
// for a key that is kept and idle.
func kept(l *lab) []figure {
	client, _ := l.locks("kept")
	rival := l.client(l.connect(nil), "kept")
	key := func(name string) *keep.Key {
		k := must(keep.New(client, name, time.Minute))
		l.atEnd(k.Close)
		return k
	}
	use := func(k *keep.Key) func() {
		return func() { check(k.Do(l.ctx, func(context.Context, *mongolock.Lease) error { return nil })) }
	}
	alone, wanted := use(key("kept")), use(key("wanted"))
	turns := raceOf(20, keptRuns, timed(func() { l.pair(client, "free") }), timed(repeat(keptUses, alone)))
	each := turns.median(1) / keptUses
	waited := raceOf(0, rivalTurns, func() float64 {
		wanted()
		start := time.Now()
		lease := l.acquire(rival, "wanted")
		defer func() { check(lease.Release()) }()
		return time.Since(start).Seconds()
	})
	return []figure{
		{"a use of a key that is kept", turns.median(0) / each, "%.0f × faster", 100, atLeast, fmt.Sprintf("an uncontended pair; %.1f µs", 1e6*each)},
		{"Acquire of a key that another process keeps", waited.median(0) / turns.median(0), "%.2f ×", 0, noTarget, "an uncontended pair"},
	}
}
