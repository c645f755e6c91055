//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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
	mark        string
	t           teller
	dismissed   chan struct{}
	kept        sync.WaitGroup
	forks       sync.Mutex // held while the command is started: a guard must not inherit what that does

	mu    sync.Mutex // protects what follows
	cmd   *exec.Cmd
	to    *os.File
	lines *bufio.Scanner
	group int  // of the command; 0: it has not begun
	over  bool // the holder ends the command
	acted bool // the guard has ended it
	done  bool // it is dismissed
}

// startGuard starts the guard, answers its questions and, if it dies, starts another, until it
// is dismissed.
func startGuard(lease held, margin, ttl time.Duration, mark string, t teller) (*guardian, error) {
	g := &guardian{lease: lease, margin: margin, ttl: ttl, mark: mark, t: t, dismissed: make(chan struct{})}
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
		Path: self, Args: []string{guardName, strconv.FormatInt(int64(g.margin), 10), strconv.FormatInt(int64(g.ttl), 10), g.mark, strconv.FormatBool(g.t.asJSON)}, Env: os.Environ(),
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
	g.forks.Lock()
	err = cmd.Start()
	g.forks.Unlock()
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

// answer answers a question of the guard, or hears that it acts.
func (g *guardian) answer(line string) {
	if line == "over" {
		g.mu.Lock()
		g.acted = true
		g.mu.Unlock()
	}
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

// starter makes the command that tells the guard its process group and then becomes the program at path. Open files
// pass through it under their numbers, so the pipes that it writes to get numbers that are free. Call started once the
// command was started, or not: it closes them, and says why the program cannot be run, if the process says so in time.
func (g *guardian) starter(path string, argv []string) (cmd *exec.Cmd, started func(within time.Duration) string, err error) {
	self, err := executable()
	if err != nil {
		return nil, nil, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer to.Close()
	g.forks.Lock()
	g.mu.Lock()
	guard, failed := syscall.Dup(int(g.to.Fd()))
	g.mu.Unlock()
	report, err := syscall.Dup(int(to.Fd()))
	if err = errors.Join(failed, err); err != nil {
		g.forks.Unlock()
		return nil, nil, err
	}
	cmd = &exec.Cmd{Path: self, Args: append([]string{starterName, strconv.Itoa(guard), strconv.Itoa(report), path}, argv...)}
	return cmd, func(within time.Duration) string {
		_, _ = syscall.Close(guard), syscall.Close(report)
		g.forks.Unlock()
		defer from.Close()
		_ = from.SetReadDeadline(time.Now().Add(within))
		why, _ := io.ReadAll(from) // nothing if it has become the program
		return string(why)
	}, nil
}

// become is the main function of that process. It returns only if the program cannot be run.
func become(args []string) int {
	guard, err := strconv.Atoi(args[0])
	report, failed := strconv.Atoi(args[1])
	if err != nil || failed != nil {
		return exitFailed
	}
	_, _ = syscall.Write(guard, fmt.Appendf(nil, "group %d\n", os.Getpid())) // if the guard is dead, the holder has to suffice
	_ = syscall.Close(guard)
	syscall.CloseOnExec(report)
	err = syscall.Exec(args[2], args[3:], os.Environ())
	_, _ = syscall.Write(report, []byte(err.Error())) // if the holder is dead, nobody asks
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

// dismiss ends the guard, waits for it, and reports whether it has ended the command.
func (g *guardian) dismiss() (acted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.done {
		g.done = true
		close(g.dismissed)
		_, _ = fmt.Fprintln(g.to, "done") // fails if the guard is dead
		_ = g.to.Close()
		stopped := time.AfterFunc(time.Second, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			_ = g.cmd.Process.Kill()
		})
		defer stopped.Stop()
		g.mu.Unlock()
		g.kept.Wait()
		g.mu.Lock()
	}
	return g.acted
}
