package testchild

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Patience is how long Says waits for a line: longer than a busy machine stands still.
const Patience = time.Minute

// A Process is a child, as its parent sees it.
type Process struct {
	*exec.Cmd
	t    testing.TB
	name string
	in   io.Closer
	tell io.Writer
	said chan string
	end  func() error // waits for the child's end; runs once
}

// Command returns the command that runs the test's binary in a role and with an order, not
// yet started. env is added to the parent's environment.
func Command(t testing.TB, role string, order any, env ...string) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), env...), envRole+"="+role, envOrder+"="+string(text),
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0") // otherwise a child under the race detector takes a second to end
	dieWithParent(cmd)
	return cmd
}

// Start starts a child. If it still runs at the end of the test it is killed.
func Start(t testing.TB, role string, order any, env ...string) *Process {
	t.Helper()
	p := &Process{Cmd: Command(t, role, order, env...), t: t, said: make(chan string, 1024)}
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.tell = in, in
	p.Stdout, p.Stderr = &splitter{lines: p.said}, os.Stderr
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.name = fmt.Sprintf("the child %q (%d)", role, p.Process.Pid)
	p.end = sync.OnceValue(func() error {
		defer close(p.said)
		return p.Wait()
	})
	t.Cleanup(p.Kill)
	return p
}

// Says returns the next line that the child prints. The test fails if none comes.
func (p *Process) Says() string {
	p.t.Helper()
	select {
	case line, more := <-p.said:
		if more {
			return line
		}
		p.t.Fatalf("%s has ended without another line", p.name)
	case <-time.After(Patience):
		p.t.Fatalf("%s has printed nothing for %v", p.name, Patience)
	}
	return ""
}

// Saying yields the lines that Says has not returned yet. It is closed when the child has
// ended by End or Kill.
func (p *Process) Saying() <-chan string { return p.said }

// Tell sends the child a line.
func (p *Process) Tell(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.tell, line); err != nil {
		p.t.Errorf("tell %s: %v", p.name, err)
	}
}

// End ends the child's context and waits until the child has ended.
func (p *Process) End() {
	p.t.Helper()
	_ = p.in.Close()
	if err := p.end(); err != nil {
		p.t.Errorf("%s: %v", p.name, err)
	}
}

// Kill ends the child with -9, unless it has ended.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	_ = p.in.Close()
	_ = p.end()
}

// A splitter cuts what is written to it into lines. Unread lines are dropped once
// the channel is full.
type splitter struct {
	lines chan<- string
	rest  []byte
}

func (s *splitter) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for {
		line, rest, found := bytes.Cut(s.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		s.rest = rest
		select {
		case s.lines <- string(line):
		default:
		}
	}
}
