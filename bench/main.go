// Command bench measures mongolock and prints one table. Most figures are ratios of two
// things that took turns in one run, with a target. Ratios hold on machines of any speed,
// and on a machine whose speed drifts.
//
//	lab.go      the server, the clients on it, and what takes turns
//	report.go   the table
//	pairs.go    what one process does with free keys and kept keys
//	handoffs.go from one goroutine or process to the next, and a crowd on one key
//	leases.go   renewals, many leases, and what is left after a crash
//	byhand.go   what they are compared with: the driver alone
//	child.go    the other processes are this program again
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const page = "../docs/internals/figures.md"

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

var (
	leases  = flag.Int("leases", 10_000, "how many leases the part about many leases holds")
	lasting = flag.Duration("ttl", time.Minute, "their TTL")
)

func runAll() error {
	write := flag.Bool("write", false, "put the table into docs/internals/figures.md")
	kind := flag.String("kind", "secantus", "the kind of server to measure on, see devmongo; empty: the first that this machine has")
	rounds := flag.Int("rounds", 3, "how often to take the ratios that depend on the machine's state, spread over the run")
	only := flag.String("only", "", "take only the figures of parts with this in their names, which -list prints; nothing is written")
	list := flag.Bool("list", false, "print the names of the parts")
	flag.Parse()
	if *list {
		for _, p := range parts {
			fmt.Println(p.name)
		}
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	all, machine, err := measure(ctx, *kind, *rounds, *only)
	if err := errors.Join(show(os.Stdout, all), err); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "\n"+machine)
	if *write && *only == "" {
		return writePage(page, markdown(all, machine))
	}
	return nil
}

// A part is a group of figures that are taken together.
type part struct {
	name   string
	varies bool // with the state of disk and machine: taken in several rounds
	take   func(*lab) []figure
}

var parts = []part{
	{"uncontended", true, pairs},
	{"handoff between processes", true, betweenProcesses},
	{"handoff inside a process", true, insideAProcess},
	{"a crowd on one key", true, crowd},
	{"the first in line is dead", false, deadInLine},
	{"renewals", false, renewals},
	{"many leases", false, manyHeld},
	{"rolling deploys", false, rollingDeploys},
}

// measure takes every figure. Each round takes all parts in turn, so that the rounds of a
// part are spread over the run, and one bad minute of the machine does not decide a
// figure. It returns those taken before an error too.
func measure(ctx context.Context, kind string, rounds int, only string) (all []figure, machine string, err error) {
	taken := make([][][]figure, len(parts))
	for round := range max(rounds, 1) {
		for i, p := range parts {
			if err != nil || !strings.Contains(p.name, only) || !p.varies && round > 0 {
				continue
			}
			start := time.Now()
			figures, on, failed := onItsOwn(ctx, kind, p)
			if err = failed; err == nil {
				taken[i], machine = append(taken[i], figures), on
				fmt.Fprintf(os.Stderr, "bench: %s: %.0f s\n", p.name, time.Since(start).Seconds())
				err = show(os.Stderr, figures) // a run that is cut off has told what it measured
			}
		}
	}
	for _, rounds := range taken {
		all = append(all, together(rounds)...)
	}
	return all, machine, err
}

// onItsOwn takes a part on a new server, so that the data of other parts does not count:
// in two runs on one server the same commands by hand took longer in later rounds.
func onItsOwn(ctx context.Context, kind string, p part) (figures []figure, machine string, err error) {
	l := &lab{ctx: ctx}
	defer func() { err = errors.Join(err, l.close()) }()
	defer caught(p.name, &err)
	l.open(kind)
	figures = p.take(l)
	return figures, l.machine(), nil
}
