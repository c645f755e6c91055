// Command compare takes the figures of docs/comparison.md and docs/internals/locks-measured.md. It
// measures mongolock and other locks in the same ways, in turns on one machine, each on the server
// that it comes with.
//
// `make compare` runs it. It needs MONGODB_URI, redis-server on PATH, and PostgreSQL; etcd and NATS
// are part of the program.
//
//	lock.go      what is compared: the contenders, and what they have in common
//	mongo.go     mongolock, a lock by hand and square/mongo-lock, on MongoDB
//	redis.go     redislock, redsync and rueidislock, on Redis
//	etcd.go      etcd's concurrency.Mutex
//	nats.go      a key of NATS, created and watched by hand
//	postgres.go  PostgreSQL's advisory locks
//	pair.go      a free key, acquired and released, also with a network between
//	crowd.go     handoffs among waiters, and a key that all contend for
//	waiting.go   what waiters ask while nothing happens, and how long a killed holder keeps a key
//	link.go      that network
//	pause.go     a process that is paused for longer than its lease (make pause-demo)
//	table.go     the tables
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	run := runAll
	switch {
	case os.Getenv(etcdDir) != "":
		run = serveEtcd
	case os.Getenv(natsDir) != "":
		run = serveNATS
	case os.Getenv(crashLock) != "":
		run = holdUntilKilled
	case os.Getenv(pauseChild) != "":
		run = depositWhenTold
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func runAll() error {
	rounds := flag.Int("rounds", 3, "how often to take each figure, spread over the run")
	write := flag.String("write", "", "`file` to put the summary into, between its markers; every table goes into internals/locks-measured.md beside it")
	only := flag.String("only", "", "take only these parts, by the names that are printed while it runs, with commas between; nothing is written")
	which := flag.String("locks", "", "compare only the locks whose short names match this `expression`; nothing is written")
	pause := flag.Bool("pause", false, "measure nothing: show what a pause beyond the lease does")
	flag.Parse()
	match, err := regexp.Compile(*which)
	if err != nil {
		return err
	}
	if *which != "" || *only != "" { // the page has the figures of one run
		*write = ""
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *pause {
		return runPauses(ctx)
	}
	return compare(ctx, max(*rounds, 1), *only, *write, match)
}

// A rival is a contender whose server runs, and what was measured.
type rival struct {
	contender
	index int // in contenders
	at    place
	stop  func() error
	asked requests

	pair      [len(roundTrips)]durations
	handOver  [len(crowds)]durations
	far       [len(roundTrips)]durations // handoffs to one waiter, over a link
	contended [len(contending)]contention
	idle      float64 // requests a second
	crash     durations
}

// A part is a group of figures that are taken together, and has a table.
type part struct {
	name string
	once bool // takes as long with more rounds
	take func(ctx context.Context, all []*rival) error
	table
}

var parts = []part{
	{"pair", false, inTurns((*rival).measurePair), pairTable},
	{"waiters", false, inTurns((*rival).measureWaiters), waitersTable},
	{"contended", false, inTurns((*rival).measureContended), contendedTable},
	{"network", false, inTurns((*rival).measureNetwork), networkTable},
	{"crash", false, func(ctx context.Context, all []*rival) error {
		return sideBySide(all, func(r *rival) error { return r.measureCrash(ctx) }) // they mostly wait
	}, crashTable},
	{"idle", true, measureIdle, idleTable},
}

func inTurns(measure func(*rival, context.Context) error) func(context.Context, []*rival) error {
	return func(ctx context.Context, all []*rival) error {
		for _, r := range all {
			if err := measure(r, ctx); err != nil {
				return fmt.Errorf("%s: %w", r.short, err)
			}
		}
		return nil
	}
}

func compare(ctx context.Context, rounds int, only, write string, match *regexp.Regexp) (err error) {
	chosen := parts
	if only != "" {
		names := strings.Split(only, ",")
		chosen = slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !slices.Contains(names, p.name) })
		if len(chosen) < len(names) {
			return fmt.Errorf("-only %s: a part has another name", only)
		}
	}
	before := load()
	all, err := startAll(ctx, match)
	defer func() {
		for _, r := range all {
			err = errors.Join(err, r.stop())
		}
	}()
	if err != nil {
		return err
	}
	for round := range rounds {
		for _, p := range chosen {
			if p.once && round > 0 {
				continue
			}
			began := time.Now()
			if err := p.take(ctx, all); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			fmt.Fprintf(os.Stderr, "compare: round %d of %d, %s: %.0f s\n", round+1, rounds, p.name, time.Since(began).Seconds())
		}
	}
	tables := map[string]string{"machine": machine(rounds, before)}
	for _, p := range chosen {
		tables[p.name] = p.draw(all)
		fmt.Fprintf(os.Stdout, "\n%s\n%s", p.name, tables[p.name])
	}
	fmt.Fprintf(os.Stdout, "\n%s", tables["machine"])
	if write == "" {
		return nil
	}
	return putPages(write, tables, all)
}

// startAll starts the server of each contender that matches. Those that run are returned in
// any case.
func startAll(ctx context.Context, match *regexp.Regexp) (all []*rival, err error) {
	for i, c := range contenders {
		if !match.MatchString(c.short) {
			continue
		}
		at, stop, err := c.start(ctx)
		if err != nil {
			return all, fmt.Errorf("%s: %w", c.short, err)
		}
		if c.server == "" {
			c.server = serverOf(c)
		}
		all = append(all, &rival{contender: c, index: i, at: at, stop: stop})
	}
	if len(all) == 0 {
		return nil, errors.New("no lock has such a name")
	}
	return all, nil
}

// with opens the contender's locks n times, as n processes would, and closes them afterwards.
func (r *rival) with(ctx context.Context, n int, s setting, measure func(all []locks) error) (err error) {
	var all []locks
	defer func() {
		for _, one := range all {
			if closed := one.close(); err == nil {
				err = closed
			}
		}
	}()
	for range n {
		one, err := r.open(ctx, r.at, s, &r.asked)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	return measure(all)
}
