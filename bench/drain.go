package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mongolock/mongolock/doclock"
)

const drainWorkers = 8

// drainQueue lets eight workers claim and complete n messages, and counts the commands
// that are sent for the claims. In one process the workers share a look ahead; in eight
// processes they do not know of each other.
func drainQueue(ctx context.Context, l *lab, processes, n int) (f figure, err error) {
	var sent atomic.Int64
	db := l.driver.Database("bench_drain")
	defer func() { err = errors.Join(err, db.Drop(ctx)) }()
	if err := fillQueue(ctx, db.Collection("outbox"), n); err != nil {
		return f, err
	}
	var all []*doclock.Locks[message]
	for range processes {
		driver, err := connect(l.uri, &sent)
		if err != nil {
			return f, err
		}
		defer driver.Disconnect(ctx)
		locks, err := doclock.New[message](driver.Database(db.Name()).Collection("outbox"), doclock.With(quiet))
		if err != nil {
			return f, err
		}
		defer locks.Close() //nolint:errcheck // nothing is held any more
		all = append(all, locks)
	}
	if err := all[0].EnsureClaimIndex(ctx, isPending, firstDue); err != nil {
		return f, err
	}
	sent.Store(0)
	claims, err := drain(ctx, all, n)
	perClaim := float64(sent.Load()-claims) / float64(max(1, claims)) // without one command for each completion
	than := fmt.Sprintf("%d workers of %d process(es) drain %d,000 messages", drainWorkers, processes, n/1000)
	return figure{"commands for a claim", perClaim, "%.3f", 1.3, atMost, than}, err
}

// drain lets the workers claim and complete messages until none is left.
func drain(ctx context.Context, all []*doclock.Locks[message], n int) (claims int64, err error) {
	var completed atomic.Int64
	var failed error
	var once sync.Once
	var workers sync.WaitGroup
	for i := range drainWorkers {
		locks := all[i%len(all)]
		workers.Go(func() {
			for {
				c, err := locks.TryClaim(ctx, isPending, firstDue)
				if errors.Is(err, doclock.ErrNoWork) {
					return
				}
				if err == nil {
					c.Value.State = "sent"
					err = c.Complete(ctx)
				}
				if err != nil {
					once.Do(func() { failed = err })
					return
				}
				completed.Add(1)
			}
		})
	}
	workers.Wait()
	if failed == nil && completed.Load() != int64(n) {
		failed = fmt.Errorf("%d of %d messages were completed", completed.Load(), n)
	}
	return completed.Load(), failed
}
