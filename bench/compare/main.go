// Command compare takes the figures of docs/internals/locks-measured.md. It measures mongolock and other locks in
// the same ways, in turns on one machine, each on the server that it comes with.
//
// `make compare` runs it. It needs MONGODB_URI, redis-server on PATH, and PostgreSQL; etcd is part of
// the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	run := compare
	if os.Getenv(etcdDir) != "" {
		run = serveEtcd
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// A rival is a contender whose server runs, and what was measured.
type rival struct {
	contender
	at    place
	stop  func() error
	asked requests

	pair, grants, fairness figure // seconds, grants a second, Jain's index
	handOver               [len(crowds)]figure
	idle                   float64 // requests a second
}

// parts are figures that are taken together.
var parts = []struct {
	name string
	take func(*rival, context.Context) error
}{
	{"pair", (*rival).measurePair},
	{"waiters", (*rival).measureWaiters},
	{"contended", (*rival).measureContended},
	{"idle", (*rival).measureIdle},
}

func compare() (err error) {
	rounds := flag.Int("rounds", 3, "how often to take each figure, spread over the run")
	write := flag.String("write", "", "`page` to put the table into, between its markers")
	which := flag.String("locks", "", "compare only the locks whose short names contain this `text`; nothing is written")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	before := load()
	all, err := startAll(ctx, *which)
	defer func() {
		for _, r := range all {
			err = errors.Join(err, r.stop())
		}
	}()
	if err != nil {
		return err
	}
	for round := range *rounds {
		for _, p := range parts {
			began := time.Now()
			for _, r := range all {
				if err := p.take(r, ctx); err != nil {
					return fmt.Errorf("%s: %s: %w", p.name, r.short, err)
				}
			}
			fmt.Fprintf(os.Stderr, "compare: round %d of %d, %s: %.0f s\n", round+1, *rounds, p.name, time.Since(began).Seconds())
		}
	}
	tables := map[string]string{"machine": machine(*rounds, before), "summary": summary(all)}
	fmt.Fprintf(os.Stdout, "\n%s\n%s", tables["summary"], tables["machine"])
	if *write == "" || *which != "" { // the page has the figures of one run
		return nil
	}
	return putTables(*write, tables)
}

// startAll starts the server of each contender that is meant. Those that run are returned in
// any case.
func startAll(ctx context.Context, which string) (all []*rival, err error) {
	for _, c := range contenders {
		if !strings.Contains(c.short, which) {
			continue
		}
		at, stop, err := c.start(ctx)
		if err != nil {
			return all, fmt.Errorf("%s: %w", c.short, err)
		}
		all = append(all, &rival{contender: c, at: at, stop: stop})
	}
	if len(all) == 0 {
		return nil, errors.New("no lock has such a name")
	}
	return all, nil
}

// with opens the contender's locks n times, as n processes would, and closes them afterwards.
func (r *rival) with(ctx context.Context, n int, measure func(all []locks) error) (err error) {
	var all []locks
	defer func() {
		for _, one := range all {
			if closed := one.close(); err == nil {
				err = closed
			}
		}
	}()
	for range n {
		one, err := r.open(ctx, r.at, &r.asked)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	return measure(all)
}
