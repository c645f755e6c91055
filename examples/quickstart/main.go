// Quickstart shows the main job of the library: two processes, one key. The processes
// are two clients on one store in memory, so that it runs anywhere. It takes two
// seconds.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

const key = "nightly-report"

var began = time.Now()

// say prints a line with the time and the host.
func say(host, format string, args ...any) {
	fmt.Printf("%6d ms  %-7s %s\n", time.Since(began).Milliseconds(), host, fmt.Sprintf(format, args...))
}

func title(s string) { fmt.Printf("\n%s\n\n", s) }

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	s := memstore.New() // between real processes: a MongoDB collection
	hostA, err := process(s, "host-a")
	if err != nil {
		return err
	}
	hostB, err := process(s, "host-b")
	if err != nil {
		return err
	}
	return errors.Join(
		onlyOneRuns(ctx, hostA, hostB),
		theNextOneWaits(ctx, hostA, hostB),
		aCrashFreesTheKey(ctx, hostA, hostB),
		hostA.Close(),
		hostB.Close(),
	)
}

func process(s store.Store, name string) (*mongolock.Client, error) {
	quiet := slog.New(slog.DiscardHandler) // the output shows the lost lease, which is a warning in the log by default
	return mongolock.NewWithStore(s, mongolock.WithOwner(name), mongolock.TTL(time.Second), mongolock.WithLogger(quiet))
}

func onlyOneRuns(ctx context.Context, hostA, hostB *mongolock.Client) error {
	title("Two hosts start the nightly job at the same moment. It runs once.")
	start := func(host string, client *mongolock.Client) error {
		ran, err := mongolock.TryDo(ctx, client, key, func(ctx context.Context, lease *mongolock.Lease) error {
			say(host, "has the lock, with token %d: writing the report", lease.Token())
			return work(ctx, 300*time.Millisecond)
		})
		switch {
		case err != nil:
			return err
		case !ran:
			say(host, "finds it held, and skips this night")
		default:
			say(host, "is done, and has released the key")
		}
		return nil
	}
	var wg sync.WaitGroup
	var errA, errB error
	wg.Go(func() { errA = start("host-a", hostA) })
	wg.Go(func() { errB = start("host-b", hostB) })
	wg.Wait()
	return errors.Join(errA, errB)
}

func theNextOneWaits(ctx context.Context, hostA, hostB *mongolock.Client) error {
	title("A job that must run on every host, but never on two at once, waits for its turn.")
	lease, err := hostA.Acquire(ctx, key, mongolock.Note("index rebuild"))
	if err != nil {
		return err
	}
	say("host-a", "has the lock")
	seen, err := hostB.Inspect(ctx, key)
	if err != nil {
		return err
	}
	say("host-b", "sees that %s has it (%s), and waits", seen.Holders[0].Owner, seen.Holders[0].Note)
	var releasedAt time.Time
	time.AfterFunc(300*time.Millisecond, func() {
		say("host-a", "releases it")
		releasedAt = time.Now()
		if err := lease.Release(); err != nil {
			say("host-a", "release: %v", err)
		}
	})
	return mongolock.Do(ctx, hostB, key, func(context.Context, *mongolock.Lease) error {
		say("host-b", "has it %v later: a wake-up, not a poll", time.Since(releasedAt).Round(10*time.Microsecond))
		return nil
	})
}

func aCrashFreesTheKey(ctx context.Context, hostA, hostB *mongolock.Client) error {
	title("The key of a host that dies is free again within one TTL, here a second.")
	// A lease without renewals is what a killed process leaves behind.
	dead, err := hostA.Acquire(ctx, key, mongolock.NoRenewal())
	if err != nil {
		return err
	}
	say("host-a", "has the lock, with token %d, and dies", dead.Token())
	say("host-b", "waits")
	return mongolock.Do(ctx, hostB, key, func(_ context.Context, lease *mongolock.Lease) error {
		say("host-b", "has it, with token %d", lease.Token())
		say("host-a", "runs again; its lease says: %v", dead.Err())
		say("", "a database that checks tokens refuses its writes: %d < %d", dead.Token(), lease.Token())
		return nil
	})
}

// work takes its time, and stops when its context ends.
func work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
