// Croncounter is what `make demo` runs: three processes have the same job, which is due again
// and again and must never run twice at once. So each takes a lock for it. One of them is
// killed with -9 while it has the lock, and another takes over when the dead one's lease has
// run out.
//
// The job reads a counter, works for half a second and writes the counter back. Two at once
// would lose a count, so the counter shows at the end whether there were any. (With -unguarded
// there is no lock: watch it fail.) What a worker does is in worker.go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	turns = 8
	ttl   = 2 * time.Second
	job   = 500 * time.Millisecond
	pause = 300 * time.Millisecond // of a worker, until its job is due again
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	d := demo{crew: make(map[string]*exec.Cmd)}
	flag.BoolVar(&d.Unguarded, "unguarded", false, "take no lock, and see what goes wrong")
	flag.Parse()
	run := d.run
	if os.Getenv(envOrder) != "" {
		run = work
	}
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

var workers = []string{"worker-1", "worker-2", "worker-3"}

// A demo is the parent of the workers. It prints what they tell it.
type demo struct {
	order

	crew   map[string]*exec.Cmd // by name
	to     *os.File             // where all workers write, so that their lines keep their order
	began  time.Time
	taken  int    // turns that were finished
	inside string // the worker that has a turn now
	token  int64  // of the last turn
	wrong  []string
	victim string
	killed time.Time
	took   time.Duration // from the kill to the next turn
}

func (d *demo) run(ctx context.Context) (err error) {
	d.Folder, err = os.MkdirTemp("", "mongolock-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.Folder)) }()
	if err := os.WriteFile(d.counter(), []byte("0"), 0o600); err != nil {
		return err
	}
	end, err := d.findServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	fmt.Printf(`%d processes want one lock, for half a second at a time. One is killed while it has the lock.
A lease lasts %v here and is renewed while its process lives. The killed one's runs out.

   time  %-18s  %-18s  %s
`, len(workers), ttl, workers[0], workers[1], workers[2])
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
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel() // kills them
		for _, cmd := range d.crew {
			_ = cmd.Wait() // a signal ended it
		}
	}()
	defer context.AfterFunc(ctx, func() { to.Close() })() // so that the scan below ends
	d.to, d.began = to, time.Now()
	for _, name := range workers {
		if err := d.start(ctx, name); err != nil {
			return err
		}
	}
	for said := bufio.NewScanner(from); d.taken < turns; {
		if !said.Scan() {
			return errors.Join(errors.New("the workers are gone"), said.Err())
		}
		if err := d.heed(ctx, said.Text()); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) start(ctx context.Context, name string) error {
	o := d.order
	o.Name = name
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), envOrder+"="+string(text))
	cmd.Stdout, cmd.Stderr = d.to, os.Stderr
	d.crew[name] = cmd
	return cmd.Start()
}

// heed takes in a line of a worker: its name, what it does, and a token.
func (d *demo) heed(ctx context.Context, line string) error {
	var name, does string
	var token int64
	if _, err := fmt.Sscan(line, &name, &does, &token); err != nil {
		return fmt.Errorf("a worker says %q: %w", line, err)
	}
	switch does {
	case "waits":
		d.say(name, "waits")
	case "has":
		return d.begin(ctx, name, token)
	case "leaves":
		d.taken, d.inside = d.taken+1, ""
		d.say(name, "gives it back")
	}
	return nil
}

func (d *demo) begin(ctx context.Context, name string, token int64) error {
	d.say(name, "HAS THE LOCK")
	if d.inside != "" {
		d.wrong = append(d.wrong, fmt.Sprintf("%s and %s were in it at once", name, d.inside))
	}
	if token <= d.token && !d.Unguarded {
		d.wrong = append(d.wrong, fmt.Sprintf("token %d after %d", token, d.token))
	}
	d.token, d.inside = token, name
	switch {
	case d.victim == "" && d.taken >= turns/2-1 && !d.Unguarded:
		sleep(ctx, job/2) // it is killed in the middle of its turn
		if err := d.crew[name].Process.Kill(); err != nil {
			return err
		}
		_ = d.crew[name].Wait() // the signal ended it
		d.victim, d.killed, d.inside = name, time.Now(), ""
		d.say(name, "KILLED (kill -9)")
	case d.took == 0 && !d.killed.IsZero():
		d.took = time.Since(d.killed)
		return d.start(ctx, d.victim) // in its own place again
	}
	return nil
}

// say prints a line with the time, and the text in the worker's column.
func (d *demo) say(name, text string) {
	column := strings.Repeat(" ", 2+20*slices.Index(workers, name))
	fmt.Printf("%5.2f s%s%s\n", time.Since(d.began).Seconds(), column, text)
}

func (d *demo) check() error {
	n, err := os.ReadFile(d.counter())
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
