// Takeover is what `make demo` runs: three processes want the same lock, again and again.
// One of them is killed with -9 while it holds the lock, and another takes over when the
// dead one's lease has run out.
//
// A turn reads a counter, works for half a second and writes the counter back. Two turns
// at once would lose a count, so the counter shows at the end whether there were any.
// (With -unguarded there is no lock: watch it fail.) What a worker does is in worker.go,
// and where the lock is kept in place.go.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mongolock/mongolock/examples/demos/internal/crew"
)

const (
	workers = 3
	ttl     = 2 * time.Second
	turn    = 500 * time.Millisecond
	pause   = 300 * time.Millisecond // of a worker, between its turns
)

// An order is what every worker is given.
type order struct {
	Place     Place
	Counter   string // a file
	Unguarded bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("demo: ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if name, o, ok, err := crew.Order[order](); ok {
		if err == nil {
			err = work(ctx, name, o)
		}
		if err != nil {
			report(name, "fails:", err)
		}
		return
	}
	var (
		w = wish{}
		d = demo{}
	)
	flag.StringVar(&w.uri, "uri", os.Getenv("MONGODB_URI"), "the MongoDB to run on (default: $MONGODB_URI, or what this machine has)")
	flag.StringVar(&w.embedded, "embedded", "", "a devmongo with the embedded server, for a machine without MongoDB")
	flag.BoolVar(&w.files, "files", false, "keep the lock in files instead")
	flag.IntVar(&d.turns, "turns", 8, "how many turns to take")
	flag.BoolVar(&d.Unguarded, "unguarded", false, "take no lock, and see what goes wrong")
	flag.Parse()
	if err := d.run(ctx, w); err != nil {
		log.Print(err)
		stop()
		os.Exit(1) //nolint:gocritic // the deferred stop was called
	}
}

// A demo is the parent of the workers. It prints what they tell it.
type demo struct {
	order
	turns int

	crew   crew.Crew
	said   *bufio.Scanner
	began  time.Time
	taken  int      // turns that were finished
	inside []string // the workers that have a turn now
	tokens []int64
	wrong  []string
	victim string
	took   time.Duration // from the kill to the next turn
	killed time.Time
}

func (d *demo) run(ctx context.Context, w wish) (err error) {
	place, end, err := find(ctx, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	scratch, err := os.MkdirTemp("", "mongolock-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	d.Place, d.Counter = place, filepath.Join(scratch, "counter")
	if err := os.WriteFile(d.Counter, []byte("0"), 0o600); err != nil {
		return err
	}
	fmt.Printf(`%d processes want one lock, for half a second at a time. One is killed while it has the lock.
A lease lasts %v here and is renewed while its process lives. The killed one's runs out.

   time%s
`, workers, ttl, row(func(i int) string { return fmt.Sprintf("worker-%d", i) }))
	if err := d.play(ctx); err != nil {
		return err
	}
	return d.check()
}

// play runs the workers until all turns are taken.
func (d *demo) play(ctx context.Context) error {
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	defer from.Close()
	// All workers write into one pipe, so that their lines keep the order in which they
	// were written.
	d.crew = crew.Crew{Said: to}
	defer d.crew.End()
	defer to.Close()
	defer context.AfterFunc(ctx, func() { to.Close() })() // so that the scan below ends
	d.said, d.began = bufio.NewScanner(from), time.Now()
	for i := 1; i <= workers; i++ {
		if err := d.crew.Start(ctx, fmt.Sprintf("worker-%d", i), d.order); err != nil {
			return err
		}
	}
	for d.taken < d.turns {
		if !d.said.Scan() {
			return errors.Join(errors.New("the workers are gone"), d.said.Err())
		}
		if err := d.heed(ctx, d.said.Text()); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// heed takes in a line of a worker: its name, what it does, and a number or a text.
func (d *demo) heed(ctx context.Context, line string) error {
	part := strings.SplitN(line, " ", 3)
	if len(part) < 3 {
		return fmt.Errorf("a worker says %q", line)
	}
	name, does, what := part[0], part[1], part[2]
	switch does {
	case "waits":
		d.say(name, "waits")
	case "has":
		return d.begin(ctx, name, what)
	case "leaves":
		d.taken++
		d.leave(name)
		d.say(name, "gives it back")
	default:
		return fmt.Errorf("%s %s %s", name, does, what)
	}
	return nil
}

func (d *demo) begin(ctx context.Context, name, what string) error {
	token, err := strconv.ParseInt(what, 10, 64)
	if err != nil {
		return err
	}
	d.say(name, "HAS THE LOCK")
	if len(d.inside) > 0 {
		d.wrong = append(d.wrong, fmt.Sprintf("%s and %s were in it at once", name, d.inside[0]))
	}
	if n := len(d.tokens); n > 0 && token <= d.tokens[n-1] && !d.Unguarded {
		d.wrong = append(d.wrong, fmt.Sprintf("token %d after %d", token, d.tokens[n-1]))
	}
	d.tokens, d.inside = append(d.tokens, token), append(d.inside, name)
	switch {
	case d.victim == "" && d.taken >= d.turns/2-1 && !d.Unguarded:
		return d.kill(ctx, name)
	case d.took == 0 && !d.killed.IsZero():
		d.took = time.Since(d.killed)
		return d.crew.Start(ctx, d.victim, d.order) // in its own place again
	}
	return nil
}

// kill ends a worker in the middle of its turn.
func (d *demo) kill(ctx context.Context, name string) error {
	sleep(ctx, turn/2)
	if err := d.crew.Kill(name); err != nil {
		return err
	}
	d.victim, d.killed = name, time.Now()
	d.leave(name)
	d.say(name, "KILLED (kill -9)")
	return nil
}

func (d *demo) leave(name string) {
	for i, in := range d.inside {
		if in == name {
			d.inside = append(d.inside[:i], d.inside[i+1:]...)
			return
		}
	}
}

// say prints a line with the time, and the text in the worker's column.
func (d *demo) say(name, text string) {
	fmt.Printf("%5.2f s%s\n", time.Since(d.began).Seconds(), row(func(i int) string {
		if name == fmt.Sprintf("worker-%d", i) {
			return text
		}
		return ""
	}))
}

// row returns a line of the table, with a column for each worker.
func row(text func(i int) string) string {
	var b strings.Builder
	for i := 1; i <= workers; i++ {
		fmt.Fprintf(&b, "  %-18s", text(i))
	}
	return strings.TrimRight(b.String(), " ")
}

func (d *demo) check() error {
	d.crew.End()
	n, err := os.ReadFile(d.Counter)
	if err != nil {
		return err
	}
	if string(n) != strconv.Itoa(d.taken) {
		d.wrong = append(d.wrong, fmt.Sprintf("%d turns, and the counter is %s", d.taken, n))
	}
	fmt.Println()
	if len(d.wrong) > 0 {
		return fmt.Errorf("wrong: %s", strings.Join(d.wrong, "; "))
	}
	fmt.Printf("%s was killed, and the next one had the lock %.1f s later.\n", d.victim, d.took.Seconds())
	fmt.Printf("%d turns, counter %s, never two at once, every token higher than the last: correct\n", d.taken, n)
	return nil
}
