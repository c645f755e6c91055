package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/keep"
)

const (
	freePairs     = 2000
	severalKeys   = 10
	severalRuns   = 600
	keptRuns      = 300
	keptUses      = 128
	rivalTurns    = 200
	renewedLeases = 1000
	renewalRounds = 5
	renewedTTL    = 17200 * time.Millisecond // just over 2^34 ns: a round then renews all that is due within half a period
	localRounds   = 600
	localPause    = 2 * time.Millisecond // in which the other goroutine joins the queue
	readersIn     = 50                   // that hold the key while another acquires and releases it
	readerPairs   = 400                  // of that other reader
	readers       = 100                  // that join and leave in a round, from several goroutines
	readerWorkers = 8
	readerRounds  = 10
)

// freePair compares a lease of a free key with the same two commands by hand and with the
// barest pair. All run in one collection, so that all have the index that the first grant
// made, except the one that shows the cost of the index. The pairs by hand show what the
// server needs for the filters and the document, which no library can save.
func freePair(l *lab) []figure {
	client, hand := l.locks("pairs")
	_, unindexed := l.locks("pairs_unindexed", mongolock.WithoutIndex())
	unfiltered := hand
	unfiltered.unfiltered = true
	lease := func() { l.pair(client, "lease") }
	byHand := func() { hand.pair(l.ctx, "hand") }
	turns := raceOf(50, freePairs, timed(lease), timed(byHand),
		timed(func() { hand.barest(l.ctx, "barest") }),
		timed(func() { unfiltered.pair(l.ctx, "unfiltered") }),
		timed(func() { unindexed.pair(l.ctx, "unindexed") }))
	return []figure{
		{"free pair", turns.ratio(1), "%.2f ×", 1.10, atMost, "the same two commands by hand"},
		{"free pair", turns.ratio(2), "%.2f ×", 1.25, atMost, "the barest pair of commands"},
		{"the same two commands by hand", turns.median(1) / turns.median(2), "%.2f ×", 0, noTarget, "that barest pair: the server's share of it"},
		{"the same, by `_id` alone", turns.median(3) / turns.median(2), "%.2f ×", 0, noTarget, "that barest pair: without the conditions that keep others out"},
		{"the same, without the TTL index", turns.median(4) / turns.median(2), "%.2f ×", 0, noTarget, "that barest pair"},
		{"allocations of a free pair", allocations(200, lease), "%.0f", 0, noTarget, fmt.Sprintf("by hand: %.0f", allocations(200, byHand))},
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
		{"their commands by hand, side by side", turns.ratio(1) / turns.ratio(2), "%.2f ×", 0, noTarget, "one free key: the server's share of it"},
	}
}

// kept compares a use of a key that is kept with a free pair, and measures how long another process waits
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
		{"a use of a key that is kept", turns.median(0) / each, "%.0f × faster", 100, atLeast, fmt.Sprintf("a free pair; %.1f µs", 1e6*each)},
		{"Acquire of a key that another process keeps", waited.median(0) / turns.median(0), "%.2f ×", 0, noTarget, "a free pair: the refusal, the notice, the release, the wake-up, the claim"},
	}
}

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

// renewals compares a round of renewals, as the keeper sends it in bulks, with the same
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

// localHandOver measures a handoff between two goroutines, from the call of Release to
// the other's grant, beside one findOneAndUpdate of such a document in the same
// collection. All start after the same pause, because a processor that has slept takes longer.
func localHandOver(l *lab) []figure {
	client, hand := l.locks("local")
	unfiltered := hand
	unfiltered.unfiltered = true
	lease, held, byID, count := l.acquire(client, "key"), hand.lock(l.ctx, "handed"), unfiltered.lock(l.ctx, "by-id"), 0
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
		paused(func() { byID.handOver(l.ctx) }),
		paused(func() { count++; hand.touch(l.ctx, "touched", count) }),
		paused(func() { hand.ping(l.ctx) }))
	over, byHand, alone, touch, ping := turns.median(0), turns.median(1), turns.median(2), turns.median(3), turns.median(4)
	check(lease.Release())
	return []figure{
		{"handoff inside a process", over / touch, "%.2f ×", 1.2, atMost, "one bare findOneAndUpdate of such a document"},
		{"handoff inside a process", over / byHand, "%.2f ×", 0, noTarget, "the same update by hand"},
		{"the same update by hand", byHand / touch, "%.2f ×", 0, noTarget, "that findOneAndUpdate: the server's share of it"},
		{"the same, by `_id` alone", alone / touch, "%.2f ×", 0, noTarget, "that findOneAndUpdate: without the conditions that keep others out"},
		{"one bare findOneAndUpdate", touch / ping, "%.1f ×", 0, noTarget, "a ping, which is a trip that writes nothing"},
	}
}

// sharing compares one more reader of a key that many share with a lease of a free key, and
// measures how often a join has to be repeated because another was faster: from goroutines of
// one process, and from as many processes.
func sharing(l *lab) []figure {
	client, _ := l.locks("readers")
	for range readersIn {
		l.acquire(client, "shared", mongolock.Shared())
	}
	turns := raceOf(20, readerPairs, timed(func() { l.pair(client, "shared", mongolock.Shared()) }), timed(func() { l.pair(client, "free") }))
	return []figure{
		{"reader pair among 50 readers", turns.ratio(1), "%.2f ×", 3, atMost, "a free pair"},
		{"retries of a join, 100 readers from 8 goroutines", retriesPerJoin(l, "joins", 1), "%.2f", 1, atMost, "counted, per join"},
		{"the same from 8 processes", retriesPerJoin(l, "joins_apart", readerWorkers), "%.2f", 0, noTarget, "counted, per join"},
	}
}

// retriesPerJoin lets 100 readers join and leave from 8 goroutines. They have one client,
// or one client each, which to the database is a process each.
func retriesPerJoin(l *lab, name string, clients int) float64 {
	var sent, granted, made atomic.Int64 // made: a claim that finds no holder makes the document
	lockers := make([]*mongolock.Client, clients)
	for i := range lockers {
		lockers[i] = l.client(l.watched(&event.CommandMonitor{
			Started: func(_ context.Context, e *event.CommandStartedEvent) {
				// This command can add a reader.
				if rev, err := e.Command.LookupErr("update", "$set", "rev"); err == nil && rev.Type == bson.TypeInt64 {
					sent.Add(1)
				}
			},
			Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				if _, err := e.Reply.LookupErr("lastErrorObject", "upserted"); err == nil {
					made.Add(1)
				}
			},
		}), name)
	}
	repeat(readerRounds, func() {
		sideBySide(readerWorkers, func(w int) {
			var in []*mongolock.Lease
			for n := w; n < readers; n += readerWorkers {
				in = append(in, l.acquire(lockers[w%clients], "key", mongolock.Shared()))
				granted.Add(1)
				if n%3 == 0 { // some leave while others come
					check(in[0].Release())
					in = in[1:]
				}
			}
			for _, lease := range in {
				check(lease.Release())
			}
		})
	})()
	return float64(sent.Load())/float64(granted.Load()-made.Load()) - 1
}
