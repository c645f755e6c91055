package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/mongolock/mongolock"
)

// An order is what every worker is given.
type order struct {
	URI, Database string // where the lock is kept, or, if they are empty,
	Folder        string // there; it has the counter in any case
	Unguarded     bool
	Name          string
}

const envOrder = "MONGOLOCK_DEMO_ORDER"

func (o order) counter() string { return filepath.Join(o.Folder, "counter") }

// work is what each process does until it is killed: a turn, again and again.
func work(ctx context.Context) error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(envOrder)), &o); err != nil {
		return err
	}
	locks, err := o.open()
	if err != nil {
		return err
	}
	defer locks.Close()
	guarded := func(ctx context.Context, turn func(context.Context, int64) error) error {
		if o.Unguarded {
			return turn(ctx, 0)
		}
		return mongolock.Do(ctx, locks, "the-counter", func(ctx context.Context, lease *mongolock.Lease) error {
			return turn(ctx, lease.Token())
		})
	}
	for ctx.Err() == nil {
		report(o.Name, "waits", 0)
		if err := guarded(ctx, func(ctx context.Context, token int64) error {
			report(o.Name, "has", token)
			return count(ctx, o.counter(), func() { report(o.Name, "leaves", token) })
		}); err != nil {
			return err
		}
		sleep(ctx, pause)
	}
	return nil
}

// count adds 1 to the counter, in the way that goes wrong if two do it at once.
func count(ctx context.Context, file string, done func()) error {
	text, err := os.ReadFile(file)
	n, bad := strconv.Atoi(string(text))
	if err := errors.Join(err, bad); err != nil {
		return err
	}
	if !sleep(ctx, job) {
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
func report(name, does string, token int64) { fmt.Printf("%s %s %d\n", name, does, token) }
