package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Figures that need several processes start this program again. The environment gives a
// child its role; parent and child exchange lines.
const (
	childRole = "MONGOLOCK_BENCH_CHILD"
	childURI  = "MONGOLOCK_BENCH_URI"
)

var roles = map[string]func(l *lab, hear *bufio.Scanner){
	"waiter": runWaiter,
	"leases": runLeases,
}

// runChild is the main function of a child. It ends when its parent closes its input.
func runChild(role string) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	l := &lab{ctx: ctx, uri: os.Getenv(childURI)}
	defer func() { err = errors.Join(err, l.close()) }()
	defer cancel()
	defer caught(role, &err)
	roles[role](l, bufio.NewScanner(os.Stdin))
	return nil
}

func say(words ...any) { fmt.Fprintln(os.Stdout, words...) }

// A child is such a process, as its parent sees it.
type child struct {
	cmd    *exec.Cmd
	tell   io.WriteCloser
	answer *bufio.Scanner
}

// startChild starts one, which ends with the part at the latest.
func (l *lab) startChild(role string) *child {
	cmd := exec.CommandContext(l.ctx, must(os.Executable()))
	cmd.Env = append(os.Environ(), childRole+"="+role, childURI+"="+l.uri)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	c := &child{cmd, must(cmd.StdinPipe()), bufio.NewScanner(must(cmd.StdoutPipe()))}
	check(cmd.Start())
	l.atEnd(func() error {
		killed := c.cmd.ProcessState != nil
		err := errors.Join(c.tell.Close(), c.cmd.Wait())
		if killed {
			return nil
		}
		return err
	})
	return c
}

func (c *child) kill() {
	check(c.cmd.Process.Kill())
	_ = c.cmd.Wait() // it was killed
}

func (c *child) say(word string) { must(fmt.Fprintln(c.tell, word)) }

// expect reads the next line, which must begin with word, and scans what follows.
func (c *child) expect(word string, into ...any) {
	if !c.answer.Scan() {
		check(errors.Join(fmt.Errorf("a child ended before it said %q", word), c.answer.Err()))
	}
	rest, ok := strings.CutPrefix(c.answer.Text(), word)
	if !ok {
		check(fmt.Errorf("a child said %q instead of %q", c.answer.Text(), word))
	}
	if len(into) > 0 {
		must(fmt.Sscan(rest, into...))
	}
}

// granted reads when the child was granted the key that was released, and waits until it is free.
// Both processes read the clock of one machine.
func (c *child) granted(released time.Time) (seconds float64) {
	var at int64
	c.expect("granted", &at)
	c.expect("free")
	return time.Unix(0, at).Sub(released).Seconds()
}
