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

var roles = map[string]func(ctx context.Context, uri string, hear *bufio.Scanner) error{
	"waiter": runWaiter,
	"crowd":  runCrowd,

	"sessions": runSessions,
}

// runChild is the main function of a child. It ends when its parent closes its input.
func runChild(role string) error {
	run, ok := roles[role]
	if !ok {
		return fmt.Errorf("no such child: %q", role)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return run(ctx, os.Getenv(childURI), bufio.NewScanner(os.Stdin))
}

func say(words ...any) { fmt.Fprintln(os.Stdout, words...) }

// A child is such a process, as its parent sees it.
type child struct {
	cmd    *exec.Cmd
	tell   io.WriteCloser
	answer *bufio.Scanner
}

func startChild(ctx context.Context, role, uri string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childRole+"="+role, childURI+"="+uri)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	tell, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd, tell, bufio.NewScanner(answers)}, cmd.Start()
}

func (c *child) say(word string) error {
	_, err := fmt.Fprintln(c.tell, word)
	return err
}

// expect reads the next line, which must begin with word, and scans what follows.
func (c *child) expect(word string, into ...any) error {
	if !c.answer.Scan() {
		return errors.Join(fmt.Errorf("a child ended before it said %q", word), c.answer.Err())
	}
	rest, ok := strings.CutPrefix(c.answer.Text(), word)
	if !ok {
		return fmt.Errorf("a child said %q instead of %q", c.answer.Text(), word)
	}
	if len(into) > 0 {
		_, err := fmt.Sscan(rest, into...)
		return err
	}
	return nil
}

func (c *child) end() error {
	return errors.Join(c.tell.Close(), c.cmd.Wait())
}
