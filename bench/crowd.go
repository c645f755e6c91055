package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
)

const (
	crowds       = 4
	crowdWaiters = 100
	crowdSettles = 5 * time.Second
)

func isHeld(err error) bool { return errors.Is(err, mongolock.ErrHeld) }

// A crowd is several processes with many waiters each, for one key that this process
// holds. Their commands are counted while nothing else is measured. They send hardly any,
// but on SecantusDB every cursor that waits for a wake-up keeps one processor busy (its
// getMore with awaitData polls), which would slow all other figures.
type crowd struct {
	client   *mongolock.Client
	children []*child
	began    time.Time
}

// waiting starts a crowd, counts its commands, and ends it. A long of 0 leaves it out.
func waiting(ctx context.Context, l *lab, long time.Duration) (figures []figure, err error) {
	if long <= 0 {
		return nil, nil
	}
	c, err := gather(ctx, l)
	if c != nil {
		defer func() { err = errors.Join(err, c.disperse()) }()
	}
	if err != nil {
		return nil, err
	}
	return c.count(long)
}

func gather(ctx context.Context, l *lab) (*crowd, error) {
	client, _, err := l.locks("crowd")
	if err != nil {
		return nil, err
	}
	c := &crowd{client: client}
	if _, err := client.Acquire(ctx, "key"); err != nil {
		return c, err
	}
	for range crowds {
		one, err := startChild(ctx, "crowd", l.uri)
		if err != nil {
			return c, err
		}
		c.children = append(c.children, one)
	}
	<-time.After(crowdSettles)
	for _, one := range c.children {
		if err := one.say("count"); err != nil {
			return c, err
		}
	}
	c.began = time.Now()
	return c, nil
}

// count waits until commands have been counted for long enough.
func (c *crowd) count(long time.Duration) ([]figure, error) {
	<-time.After(time.Until(c.began.Add(long)))
	var most float64
	for _, one := range c.children {
		if err := one.say("tell"); err != nil {
			return nil, err
		}
		var rate float64
		var waiting int
		if err := one.expect("rate", &rate, &waiting); err != nil {
			return nil, err
		}
		if waiting != crowdWaiters {
			return nil, fmt.Errorf("only %d of %d waiters still wait", waiting, crowdWaiters)
		}
		most = max(most, rate)
	}
	over := time.Since(c.began).Round(time.Second)
	return []figure{
		{"100 waiters on a held key, commands per second", most, "%.3f", 0.1, atMost, fmt.Sprintf("the busiest of 4 processes, over %v", over)},
	}, nil
}

func (c *crowd) disperse() error {
	var errs []error
	for _, one := range c.children {
		errs = append(errs, one.end())
	}
	return errors.Join(append(errs, c.client.Close())...)
}

func runCrowd(ctx context.Context, uri string, hear *bufio.Scanner) error {
	var sent, waiting atomic.Int64
	driver, err := connect(uri, &sent)
	if err != nil {
		return err
	}
	client, err := mongolock.New(locksOf(driver, "crowd"), quiet)
	if err != nil {
		return err
	}
	for range crowdWaiters {
		waiting.Add(1)
		go func() {
			defer waiting.Add(-1)
			_, _ = client.Acquire(ctx, "key") // until the process ends
		}()
	}
	var began time.Time
	var before int64
	for hear.Scan() {
		switch hear.Text() {
		case "count":
			began, before = time.Now(), sent.Load()
		case "tell":
			say("rate", float64(sent.Load()-before)/time.Since(began).Seconds(), waiting.Load())
		}
	}
	return errors.Join(client.Close(), driver.Disconnect(ctx))
}
