// Command bench measures mongolock, and prints one table: what was measured, as a
// ratio of two things that took turns in one run, beside what it may be. Ratios hold
// on machines of any speed, and on one whose speed drifts.
//
//	engine.go    the engine on a store in memory
//	mongo.go     a free pair, a round of renewals, a hand-over inside a process
//	handover.go  hand-overs between two processes
//	modes.go     readers of one key, and looking at many keys
//	crowd.go     what many waiters cost while nothing happens
//	trees.go     path locks on a tree with many
//	claims.go    a claim of one document of many
//	drain.go     what a queue's workers send
//	byhand.go    what they are compared with: the driver alone
//	child.go     the other processes are this program again
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/mongolock/mongolock/devmongo"
)

const page = "../docs/performance.md"

func main() {
	run := runAll
	if role := os.Getenv(childRole); role != "" {
		run = func() error { return runChild(role) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runAll() error {
	write := flag.Bool("write", false, "put the table into docs/performance.md")
	kind := flag.String("kind", string(devmongo.Secantus), "the kind of server to measure on, see devmongo; empty: the first that can be had")
	long := flag.Duration("long", 66*time.Second, "how long the waiters are counted; 0 leaves them out")
	only := flag.String("only", "", "take the figures of this part alone, as it is named while it runs; it is not written")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	*write = *write && *only == ""
	all, machine, err := measure(ctx, devmongo.Kind(*kind), *long, *only)
	if err := errors.Join(show(os.Stdout, all), err); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "\n"+machine)
	if *write {
		return writePage(page, markdown(all, machine))
	}
	return nil
}

// measure takes every figure. The engine's come first, while nothing else runs in
// this process.
func measure(ctx context.Context, kind devmongo.Kind, long time.Duration, only string) (all []figure, machine string, err error) {
	took := func(what string, start time.Time) {
		fmt.Fprintf(os.Stderr, "bench: %s: %.0f s\n", what, time.Since(start).Seconds())
	}
	start := time.Now()
	const inMemory = "the engine"
	if only == "" || only == inMemory {
		if all, err = engine(ctx); err != nil || only != "" {
			return all, "", err
		}
		took(inMemory, start)
	}

	l, err := openLab(ctx, kind)
	if err != nil {
		return all, "", err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	machine = l.machine(ctx)

	for _, part := range []struct {
		name string
		take func(context.Context, *lab) ([]figure, error)
	}{
		{"free pairs", freePair},
		{"renewals", renewals},
		{"hand-overs in a process", localHandOver},
		{"hand-overs between processes", handOver},
		{"shared keys", modes},
		{"trees", trees},
		{"many waiters", func(ctx context.Context, l *lab) ([]figure, error) { return waiting(ctx, l, long) }},
		{"claims of documents", documentClaims},
	} {
		if only != "" && only != part.name {
			continue
		}
		start := time.Now()
		figures, err := part.take(ctx, l)
		if err != nil {
			return all, machine, fmt.Errorf("%s: %w", part.name, err)
		}
		all = append(all, figures...)
		took(part.name, start)
	}
	return all, machine, nil
}
