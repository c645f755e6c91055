package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/leader"
)

const (
	deploys      = 4 // of five processes each
	deployed     = 5
	deployWarmUp = 300 * time.Millisecond
)

// rollingDeploys measures for how long nobody leads while processes are replaced one after the
// other: each is started, and then the one before it is stopped. Each is a client of its own.
func rollingDeploys(l *lab) []figure {
	l.locks("deploys") // with its indexes
	var mu sync.Mutex  // protects what follows
	var left time.Time
	var gaps []float64
	leads := make(chan struct{}, 1)
	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(l.ctx)
		client, over := l.client(l.connect(nil), "deploys"), make(chan error, 1)
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
	for range deploys * deployed {
		next := start()
		stop()
		<-leads
		stop = next
	}
	return []figure{
		{"nobody leads while a process is replaced", median(gaps), "%.0f ms", 50, atMost, "a rolling deploy with AwaitSuccessor; median of 20"},
		{"the longest of these", slices.Max(gaps), "%.0f ms", 0, noTarget, ""},
	}
}
