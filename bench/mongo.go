package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
)

const (
	freePairs     = 2000
	renewedLeases = 1000
	renewalRounds = 5
	renewedTTL    = 17200 * time.Millisecond // just over 2^34 ns: a round then renews all that is due within half a period
	localRounds   = 600
	localWarm     = 20
)

// freePair compares a lease of a free key with the same two commands by hand and with the
// barest pair. All run in one collection, so that all have the index that the first grant
// made, except the one that shows the cost of the index. The pairs by hand show what the
// server needs for the filters and the document, which no library can save.
func freePair(ctx context.Context, l *lab) ([]figure, error) {
	client, hand, err := l.locks("pairs")
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // nothing is held any more
	lease := func() error { return pair(ctx, client, "lease") }
	byHand := func() error { return hand.pair(ctx, "hand") }
	other, unindexed, err := l.locks("pairs_unindexed", mongolock.WithoutIndex())
	if err != nil {
		return nil, err
	}
	defer other.Close() //nolint:errcheck // it never held anything
	unfiltered := hand
	unfiltered.unfiltered = true
	turns := raceOf(lease, byHand, func() error { return hand.barest(ctx, "barest") },
		func() error { return unfiltered.pair(ctx, "unfiltered") },
		func() error { return unindexed.pair(ctx, "unindexed") })
	if err := turns.run(50, freePairs); err != nil {
		return nil, err
	}
	ours, err := allocations(200, lease)
	if err != nil {
		return nil, err
	}
	theirs, err := allocations(200, byHand)
	return []figure{
		{"free pair", turns.ratio(1), "%.2f ×", 1.10, atMost, "the same two commands by hand"},
		{"free pair", turns.ratio(2), "%.2f ×", 1.25, atMost, "the barest pair of commands"},
		{"the same two commands by hand", turns.median(1) / turns.median(2), "%.2f ×", 0, noTarget, "that barest pair: the server's share of it"},
		{"the same, by `_id` alone", turns.median(3) / turns.median(2), "%.2f ×", 0, noTarget, "that barest pair: without the conditions that keep others out"},
		{"the same, without the TTL index", turns.median(4) / turns.median(2), "%.2f ×", 0, noTarget, "that barest pair"},
		{"allocations of a free pair", ours, "%.0f", 0, noTarget, fmt.Sprintf("by hand: %.0f", theirs)},
	}, err
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
func (b bulks) round(leases int) (round []bulk, err error) {
	enough := time.After(30 * time.Second)
	for leases > 0 {
		select {
		case one := <-b.done:
			round = append(round, one)
			leases -= one.count
		case <-enough:
			return nil, fmt.Errorf("%d leases were not renewed within 30 s", leases)
		}
	}
	return round, nil
}

// renewals compares a round of renewals, as the keeper sends it in bulks, with the same
// bulks by hand, which are sent in the pauses. Both collections have the TTL index, because a
// renewal moves an entry of it.
func renewals(ctx context.Context, l *lab) ([]figure, error) {
	watch := bulks{make(chan bulk, 1000)}
	client, _, err := l.locks("renewals", mongolock.TTL(renewedTTL), mongolock.WithObserver(watch))
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what is left runs out
	other, hand, err := l.locks("renewals_by_hand")
	if err != nil {
		return nil, err
	}
	defer other.Close() //nolint:errcheck // it never held anything
	if err := other.EnsureIndex(ctx); err != nil {
		return nil, err
	}
	same, err := hand.hold(ctx, renewedLeases)
	if err != nil {
		return nil, err
	}
	if err := holdMany(ctx, client, renewedLeases); err != nil {
		return nil, err
	}
	var ratios []float64
	var sent int
	for range renewalRounds {
		round, err := watch.round(renewedLeases)
		if err != nil {
			return nil, err
		}
		var took, byHand time.Duration
		for _, one := range round {
			start := time.Now()
			if err := same.renew(ctx, one.count); err != nil {
				return nil, err
			}
			took, byHand = took+one.took, byHand+time.Since(start)
		}
		ratios = append(ratios, took.Seconds()/byHand.Seconds())
		sent += len(round)
	}
	return []figure{
		{"1,000 leases renewed", median(ratios), "%.2f ×", 1.2, atMost, fmt.Sprintf("the same bulks by hand; %.1f a round", float64(sent)/renewalRounds)},
	}, nil
}

func holdMany(ctx context.Context, client *mongolock.Client, n int) error {
	const workers = 20
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				_, errs[w] = client.Acquire(ctx, fmt.Sprint("key-", i))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A local has the contestants of a hand-over between two goroutines. All start after the
// same pause, because a processor that has slept takes longer.
type local struct {
	client *mongolock.Client
	lease  *mongolock.Lease // held
	hand   byHand
	held   *handLock
	byID   *handLock // by its _id alone
	count  int
}

// localPause is how long the other goroutine has to join the queue.
const localPause = 2 * time.Millisecond

// localHandOver measures a hand-over between two goroutines, from the call of Release to
// the other's grant, beside one findOneAndUpdate of such a document in the same
// collection.
func localHandOver(ctx context.Context, l *lab) ([]figure, error) {
	client, hand, err := l.locks("local")
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what is left runs out
	at := &local{client: client, hand: hand}
	if at.lease, err = client.Acquire(ctx, "key"); err != nil {
		return nil, err
	}
	if at.held, err = hand.lock(ctx, "handed"); err != nil {
		return nil, err
	}
	unfiltered := hand
	unfiltered.unfiltered = true
	if at.byID, err = unfiltered.lock(ctx, "by-id"); err != nil {
		return nil, err
	}
	if _, err := hand.lock(ctx, "touched"); err != nil {
		return nil, err
	}
	took, err := at.run(ctx)
	if err != nil {
		return nil, err
	}
	over, byHand, byID, touch, ping := median(took[0]), median(took[1]), median(took[2]), median(took[3]), median(took[4])
	return []figure{
		{"hand-over inside a process", over / touch, "%.2f ×", 1.2, atMost, "one bare findOneAndUpdate of such a document"},
		{"hand-over inside a process", over / byHand, "%.2f ×", 0, noTarget, "the same update by hand"},
		{"the same update by hand", byHand / touch, "%.2f ×", 0, noTarget, "that findOneAndUpdate: the server's share of it"},
		{"the same, by `_id` alone", byID / touch, "%.2f ×", 0, noTarget, "that findOneAndUpdate: without the conditions that keep others out"},
		{"one bare findOneAndUpdate", touch / ping, "%.1f ×", 0, noTarget, "a ping, which is a trip that writes nothing"},
	}, at.lease.Release()
}

// run lets each of the five contestants take its turn.
func (l *local) run(ctx context.Context) (took [5][]float64, err error) {
	paused := func(f func() error) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			<-time.After(localPause)
			start := time.Now()
			err := f()
			return time.Since(start), err
		}
	}
	turns := [5]func() (time.Duration, error){
		func() (time.Duration, error) { return l.handOver(ctx) },
		paused(func() error { return l.held.handOver(ctx) }),
		paused(func() error { return l.byID.handOver(ctx) }),
		paused(func() error { l.count++; return l.hand.touch(ctx, "touched", l.count) }),
		paused(func() error { return l.hand.ping(ctx) }),
	}
	for i := range localWarm + localRounds {
		for _, n := range rand.Perm(len(turns)) {
			d, err := turns[n]()
			if err != nil {
				return took, err
			}
			if i >= localWarm {
				took[n] = append(took[n], d.Seconds())
			}
		}
	}
	return took, nil
}

func (l *local) handOver(ctx context.Context) (time.Duration, error) {
	type grant struct {
		lease *mongolock.Lease
		at    time.Time
		err   error
	}
	granted := make(chan grant, 1)
	go func() {
		lease, err := l.client.Acquire(ctx, "key")
		granted <- grant{lease, time.Now(), err}
	}()
	<-time.After(localPause)
	start := time.Now()
	if err := l.lease.Release(); err != nil {
		return 0, err
	}
	next := <-granted
	l.lease = next.lease
	return next.at.Sub(start), next.err
}
