package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/mongolock/mongolock"
)

// work is what each process does until its standard input ends: a turn, again and again.
func work(ctx context.Context, name string, o order) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends when the parent wants, or dies
		cancel()
	}()
	locks, leave, err := o.Place.open(name)
	if err != nil {
		return err
	}
	defer leave()
	for ctx.Err() == nil {
		report(name, "waits", "-")
		err := o.guarded(ctx, locks, func(ctx context.Context, token int64) error {
			report(name, "has", token)
			return count(ctx, o.Counter, func() { report(name, "leaves", token) })
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
		sleep(ctx, pause)
	}
	return nil
}

// guarded runs a turn while this process has the lock.
func (o order) guarded(ctx context.Context, locks *mongolock.Client, turn func(context.Context, int64) error) error {
	if o.Unguarded {
		return turn(ctx, 0)
	}
	return mongolock.Do(ctx, locks, "the-counter", func(ctx context.Context, lease *mongolock.Lease) error {
		return turn(ctx, lease.Token())
	})
}

// count adds 1 to the counter, in the way that goes wrong if two do it at once.
func count(ctx context.Context, file string, done func()) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	if !sleep(ctx, turn) {
		return context.Cause(ctx) // the lease is over: write nothing
	}
	err = os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600)
	done()
	return err
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// report tells the parent. A short line is written in one piece.
func report(name, does string, what any) {
	if err, ok := what.(error); ok && errors.Is(err, context.Canceled) {
		return
	}
	fmt.Fprintf(os.Stdout, "%s %s %v\n", name, does, what)
}
