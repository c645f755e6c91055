// Command compare takes the figures of docs/comparison.md. It measures mongolock and locks
// on other servers in the same ways, in turns on one machine.
//
// `make compare` runs it. It needs MONGODB_URI, and redis-server on PATH; etcd is part of
// the program.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"
)

// A locks is one process's access to one kind of lock.
type locks interface {
	// acquire waits for the key and returns a function that releases it.
	acquire(ctx context.Context, key string) (release func() error, err error)
	close() error
}

// A contender is one kind of lock on one server. Each call of open makes connections of
// its own, as another process would.
type contender struct {
	name, server string
	open         func(ctx context.Context) (locks, error)
	close        func() error
	asked        *requests
}

// An answer has the measurements of one contender.
type answer struct {
	contender
	pair, handOver []time.Duration
	idle           float64 // requests a second
}

const (
	rounds    = 5  // so that a bad minute of the machine affects all contenders
	warmUps   = 20 // in each round, like the numbers below
	pairs     = 100
	handOvers = 12
)

func main() {
	if os.Getenv(etcdDir) != "" {
		serveEtcd()
		return
	}
	write := flag.String("write", "", "`file` to put the tables into, between their markers")
	idle := flag.Bool("idle", false, "count the requests of holders and waiters, and measure nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *write, *idle)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, write string, idle bool) (err error) {
	var answers []*answer
	defer func() {
		for _, a := range answers {
			if ended := a.close(); err == nil {
				err = ended
			}
		}
	}()
	for _, start := range contenders {
		c, err := start(ctx)
		if err != nil {
			return err
		}
		answers = append(answers, &answer{contender: c})
	}
	if err := measureIdle(ctx, answers); err != nil {
		return err
	}
	table := idleTableOf(answers)
	fmt.Print(table) //nolint:forbidigo // a command's output
	if write != "" {
		if err := putTable(write, "idle", table); err != nil {
			return err
		}
	}
	if idle {
		return nil
	}
	for round := range rounds {
		for _, a := range answers {
			fmt.Fprintf(os.Stderr, "compare: %d of %d: %s\n", round+1, rounds, a.name)
			if err := a.measure(ctx); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
		}
	}
	table = tableOf(answers)
	fmt.Print(table) //nolint:forbidigo // a command's output
	if write == "" {
		return nil
	}
	return putTable(write, "measured", table)
}

func (a *answer) measure(ctx context.Context) error {
	here, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer here.close() //nolint:errcheck // nothing is held any more
	there, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer there.close() //nolint:errcheck // nothing is held any more
	for i := range warmUps + pairs {
		start := time.Now()
		release, err := here.acquire(ctx, "free")
		if err == nil {
			err = release()
		}
		if err != nil {
			return err
		}
		if i >= warmUps {
			a.pair = append(a.pair, time.Since(start))
		}
	}
	for range handOvers {
		took, err := handOver(ctx, here, there)
		if err != nil {
			return err
		}
		a.handOver = append(a.handOver, took)
	}
	return nil
}

// handOver returns the time from the call that releases the key to its grant to a waiting
// process.
func handOver(ctx context.Context, here, there locks) (time.Duration, error) {
	release, err := here.acquire(ctx, "handed")
	if err != nil {
		return 0, err
	}
	type grant struct {
		at      time.Time
		release func() error
		err     error
	}
	granted := make(chan grant, 1)
	go func() {
		release, err := there.acquire(ctx, "handed")
		granted <- grant{time.Now(), release, err}
	}()
	<-time.After(150*time.Millisecond + jitter(100*time.Millisecond)) // until it waits, at any point between two polls
	start := time.Now()
	if err := release(); err != nil {
		return 0, err
	}
	g := <-granted
	if g.err != nil {
		return 0, g.err
	}
	return g.at.Sub(start), g.release()
}

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)-1, int(q*float64(len(d))))]
}
