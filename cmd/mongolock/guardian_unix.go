//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A guardian is the holder's side. It keeps a guard running.
type guardian struct {
	lease       held
	margin, ttl time.Duration
	t           teller
	dismissed   chan struct{}
	kept        sync.WaitGroup

	mu    sync.Mutex // protects what follows
	cmd   *exec.Cmd
	to    *os.File
	lines *bufio.Scanner
	group int  // of the command; 0: it has not begun
	over  bool // the holder ends the command
	done  bool // it is dismissed
}

// startGuard starts the guard, answers its questions and, if it dies, starts another, until it
// is dismissed.
func startGuard(lease held, margin, ttl time.Duration, t teller) (*guardian, error) {
	g := &guardian{lease: lease, margin: margin, ttl: ttl, t: t, dismissed: make(chan struct{})}
	if err := g.start(); err != nil {
		return nil, err
	}
	g.kept.Go(g.keep)
	return g, nil
}

var errDismissed = errors.New("it is not needed any more")

// keep answers the guard, and replaces it when it has died.
func (g *guardian) keep() {
	const pause = 100 * time.Millisecond
	said := false
	for {
		g.mu.Lock()
		lines, cmd := g.lines, g.cmd
		g.mu.Unlock()
		for lines.Scan() {
			g.answer(lines.Text())
		}
		_ = cmd.Wait() // how it ended does not matter
		for again := true; again; {
			select {
			case <-g.dismissed:
				return
			case <-time.After(pause):
			}
			err := g.start()
			if errors.Is(err, errDismissed) {
				return
			}
			if again = err != nil; again && !said {
				said = true
				g.t.tell("unguarded", fmt.Sprintf("the guard of %s has died, and another cannot be started: %s. If this process is killed or stopped, the command may outlive the lease", g.t.key, sentence(err)), nil)
			}
		}
	}
}

// start starts a guard, and returns when it knows what to do.
func (g *guardian) start() error {
	self, err := executable()
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: self, Args: []string{guardName, g.margin.String(), g.ttl.String()}, Env: os.Environ(),
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // signals for our group do not reach it
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	in, to, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdin = in
	err = cmd.Start()
	_ = in.Close() // the guard has its own copy
	if err != nil {
		_ = to.Close()
		return err
	}
	lines := bufio.NewScanner(from)
	if !lines.Scan() || lines.Text() != "ready" {
		_ = to.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it has ended
		return errors.New("it ended at once")
	}
	g.mu.Lock()
	if g.done {
		g.mu.Unlock()
		_ = to.Close() // which ends it
		_ = cmd.Wait()
		return errDismissed
	}
	if g.to != nil {
		_ = g.to.Close() // the one before is dead
	}
	g.cmd, g.to, g.lines = cmd, to, lines
	group, over := g.group, g.over
	g.mu.Unlock()
	for g.lease.Err() == nil && lines.Scan() && lines.Text() != "knows" {
		g.answer(lines.Text())
	}
	if group != 0 {
		g.send("group %d", group)
	}
	if over {
		g.send("ending")
	}
	return nil
}

// answer answers a question of the guard.
func (g *guardian) answer(line string) {
	var question int64
	if _, err := fmt.Sscanf(line, "ask %d", &question); err == nil {
		g.send("left %d %d", question, int64(g.lease.Remaining()))
	}
}

// began tells the guard the command's process group. It knows that already, unless it is not
// the guard that the command was started under.
func (g *guardian) began(group int) {
	g.mu.Lock()
	g.group = group
	g.mu.Unlock()
	g.send("group %d", group)
}

// ending tells the guard that the holder ends the command.
func (g *guardian) ending() {
	g.mu.Lock()
	g.over = true
	g.mu.Unlock()
	g.send("ending")
}

// pid returns the guard's process ID.
func (g *guardian) pid() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cmd.Process.Pid
}

// starter makes the command that tells the guard its process group and then becomes the program
// at path. Open files pass through it under their numbers, so the guard's pipe gets a number
// that is free. Call started once the command was started; it closes the pipe.
func (g *guardian) starter(path string, argv []string) (cmd *exec.Cmd, started func(), err error) {
	self, err := executable()
	if err != nil {
		return nil, nil, err
	}
	g.mu.Lock()
	to, err := syscall.Dup(int(g.to.Fd()))
	g.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	cmd = &exec.Cmd{Path: self, Args: append([]string{starterName, strconv.Itoa(to), path}, argv...)}
	return cmd, func() { _ = syscall.Close(to) }, nil
}

// become is the main function of that process. It returns only if the program cannot be run.
func become(to, path string, argv []string) int {
	if guard, err := strconv.Atoi(to); err == nil {
		_, _ = syscall.Write(guard, fmt.Appendf(nil, "group %d\n", os.Getpid())) // if the guard is dead, the holder has to suffice
		_ = syscall.Close(guard)
	}
	err := syscall.Exec(path, argv, os.Environ())
	fmt.Fprintf(os.Stderr, "mongolock: %s: %s\n", clean(argv[0]), sentence(err))
	return exitNotRun
}

// executable returns this program, on Linux even if the file was replaced meanwhile.
func executable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// send writes a line. It fails if the guard is dead; then the holder has to suffice.
func (g *guardian) send(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = fmt.Fprintf(g.to, format+"\n", args...) // one write: lines of two goroutines do not mix
}

// dismiss ends the guard and waits for it.
func (g *guardian) dismiss() {
	close(g.dismissed)
	g.mu.Lock()
	g.done = true
	_, _ = fmt.Fprintln(g.to, "done") // fails if the guard is dead
	_ = g.to.Close()
	g.mu.Unlock()
	stopped := time.AfterFunc(time.Second, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		_ = g.cmd.Process.Kill()
	})
	defer stopped.Stop()
	g.kept.Wait()
}
