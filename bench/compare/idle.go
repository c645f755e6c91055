package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	idleWaiters   = 64
	idleProcesses = 8
	idleSettles   = 3 * time.Second
	idleTTL       = time.Minute      // of locks that their callers must renew; the others have their own
	idleWoken     = 30 * time.Second // a TTL: each of our waiters asks once in it, when the first grant would be over
	idlePolled    = 3 * time.Second
)

// measureIdle counts what a holder and its waiters ask their server while nothing happens:
// those that are woken side by side, and the others after them, as they load the machine.
func measureIdle(ctx context.Context, all []*rival) error {
	var woken sync.WaitGroup
	errs := make([]error, len(all))
	for i, r := range all {
		if !r.polls {
			woken.Go(func() { errs[i] = r.measureIdle(ctx, setting{}, idleSettles, idleWoken) })
		}
	}
	woken.Wait()
	for i, r := range all {
		if r.polls {
			errs[i] = r.measureIdle(ctx, setting{ttl: idleTTL}, time.Second, idlePolled)
		}
		if errs[i] != nil {
			return fmt.Errorf("%s: %w", r.short, errs[i])
		}
	}
	return nil
}

func (r *rival) measureIdle(ctx context.Context, s setting, settles, lasts time.Duration) (err error) {
	all, closeAll, err := r.processes(ctx, 1+idleProcesses, s)
	if err != nil {
		return err
	}
	defer func() {
		if closed := closeAll(); err == nil {
			err = closed
		}
	}()
	release, err := all[0].acquire(ctx, "idle")
	if err != nil {
		return err
	}
	waits, leave := context.WithCancel(ctx)
	defer leave()
	ended := make(chan error, idleWaiters)
	for i := range idleWaiters {
		go func() {
			release, err := all[1+i%idleProcesses].acquire(waits, "idle")
			if err == nil {
				err = errors.Join(errTwo, release())
			}
			ended <- err
		}()
	}
	<-time.After(settles)
	before, began := r.asked.Load(), time.Now()
	select {
	case <-time.After(lasts):
	case err := <-ended:
		return fmt.Errorf("a waiter did not wait: %w", err)
	}
	r.idle = float64(r.asked.Load()-before) / time.Since(began).Seconds()
	leave()
	for range idleWaiters {
		if err := <-ended; errors.Is(err, errTwo) {
			return err
		}
	}
	return release()
}

func idleTable(all []*rival) string {
	var b strings.Builder
	head(&b, "requests a second of a holder and 64 waiters in 8 processes")
	for _, r := range all {
		row(&b, r, rate(r.idle))
	}
	fmt.Fprintf(&b, "\nCounted for %v, those that ask again and again for %v.", idleWoken, idlePolled)
	b.WriteString(ahead(all, "%s requests a second", func(r *rival) float64 { return r.idle }, rate))
	return b.String()
}
