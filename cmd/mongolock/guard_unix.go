//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The guard is a second process of this program, with the name guardName. It knows until when the lease is good, and
// ends what the command has started at that time if the first process, the holder, does not:
// because the holder is stopped, or was killed. The holder writes a line whenever something
// changes, and many times a TTL:
//
//	UNTIL PID GROUP ENDS   until when the lease is good, by the machine's clock (machineTime); the
//	                       command's process and its group, or 0 as long as there is none; whether
//	                       the holder has sent SIGTERM itself
//	done                   nothing is left: the guard is not needed any more
//
// If the pipe ends without "done", the holder is dead. The time is in the pipe before the command
// begins. If the holder is stopped before it has written PID, the guard finds the command by its mark
// (on Linux). The guard writes a line only if it ends the command.

// A guardian is the holder's side. It keeps a guard running.
type guardian struct {
	lease       held
	margin, ttl time.Duration
	mark        string
	t           teller
	dismissed   chan struct{}
	kept        sync.WaitGroup

	mu         sync.Mutex    // protects what follows
	until      time.Duration // by machineTime; not known any more once it has passed
	pid, group int
	ending     bool
	cmd        *exec.Cmd
	to         *os.File
	from       io.Reader
	acted      bool // the guard has ended the command
}

// startGuard starts the guard and, if it dies, starts another, until it is dismissed.
func startGuard(lease held, margin, ttl time.Duration, mark string, t teller) (*guardian, error) {
	g := &guardian{lease: lease, margin: margin, ttl: ttl, mark: mark, t: t, dismissed: make(chan struct{})}
	if err := g.start(); err != nil {
		return nil, err
	}
	g.kept.Go(g.keep)
	return g, nil
}

// start starts a guard that knows what to do.
func (g *guardian) start() error {
	self, err := executable()
	if err != nil {
		return err
	}
	in, to, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: self, Args: []string{guardName, fmt.Sprint(int64(g.margin)), g.mark}, Env: os.Environ(), Stdin: in,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // signals for our group do not reach it
	}
	from, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	_ = in.Close() // the guard has its own copy
	if err != nil {
		_ = to.Close()
		return err
	}
	g.mu.Lock()
	if g.cmd != nil {
		g.end()
	}
	g.cmd, g.to, g.from = cmd, to, from
	g.mu.Unlock()
	g.tell() //nolint:errcheck // keep tells it again
	return nil
}

// executable returns this program, on Linux even if the file was replaced meanwhile.
func executable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// keep tells the guard until when the lease is good, and replaces it when it has died.
func (g *guardian) keep() {
	tick := time.NewTicker(min(max(g.ttl/50, 5*time.Millisecond), 500*time.Millisecond))
	defer tick.Stop()
	for said := false; ; {
		select {
		case <-g.dismissed:
			return
		case <-tick.C:
		}
		if !errors.Is(g.tell(), syscall.EPIPE) {
			continue
		}
		if err := g.start(); err != nil && !said {
			said = true
			g.t.tell("unguarded", fmt.Sprintf("the guard of %s has died, and another cannot be started: %s. If this process is killed or stopped, the command may outlive the lease", g.t.key, sentence(err)), nil)
		}
	}
}

// tell writes a line. The error is EPIPE if the guard is dead; then the holder has to suffice.
func (g *guardian) tell() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := machineTime() // first: a pause makes the deadline too early, never too late
	if left := g.lease.Remaining(); left > 0 {
		g.until = now + left
	}
	_ = g.to.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // the guard may be stopped, and the pipe full
	_, err := fmt.Fprintln(g.to, int64(g.until), g.pid, g.group, g.ending)
	return err
}

// began tells the guard what to end.
func (g *guardian) began(pid, group int) {
	g.mu.Lock()
	g.pid, g.group = pid, group
	g.mu.Unlock()
	_ = g.tell()
}

// ends tells the guard that the holder ends the command.
func (g *guardian) ends() {
	g.mu.Lock()
	g.ending = true
	g.mu.Unlock()
	_ = g.tell()
}

// deadline is the lease's, as last known.
func (g *guardian) deadline() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// dismiss ends the guard, waits for it, and reports whether it has ended the command.
func (g *guardian) dismiss() (acted bool) {
	select {
	case <-g.dismissed:
		return g.acted
	default:
	}
	close(g.dismissed)
	g.kept.Wait()
	_ = g.to.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_, _ = fmt.Fprintln(g.to, "done") // fails if the guard is dead
	stopped := time.AfterFunc(time.Second, func() { _ = g.cmd.Process.Kill() })
	defer stopped.Stop()
	g.end()
	return g.acted
}

// end waits for the end of a guard that is dead or dismissed.
func (g *guardian) end() {
	_ = g.to.Close()
	line, _ := io.ReadAll(g.from) // until it has ended
	g.acted = g.acted || len(line) > 0
	_ = g.cmd.Wait() // how it ended does not matter
}

// A watchman is the guard's side.
type watchman struct {
	margin time.Duration
	mark   string // of what the command starts

	until      time.Duration // none until the first line
	pid, group int
	told       bool // the holder has sent SIGTERM
	orphan     bool // the holder is dead

	members group   // what the command has started
	gone    bool    // it had no member: another group may get its ID
	end     *ending // none: the lease is good, or nobody has looked
}

// guard is the main function of the guard.
func guard() int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	rename()
	w := &watchman{}
	if _, err := fmt.Sscan(strings.Join(os.Args[1:], " "), &w.margin, &w.mark); err != nil {
		return exitFailed
	}
	lines := make(chan string)
	go func() { // ends with the process
		for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
			lines <- scan.Text()
		}
		close(lines)
	}()
	for acted := false; ; {
		select {
		case line, ok := <-lines:
			switch {
			case line == "done":
				return 0
			case !ok:
				w.orphan, lines = true, nil
			default:
				w.hear(line)
			}
		case <-time.After(w.pause(machineTime())):
		}
		acts, over := w.act(machineTime())
		if over {
			return 0
		}
		if acts && !acted {
			acted = true
			fmt.Println("over")
		}
	}
}

func (w *watchman) hear(line string) {
	pid := w.pid
	_, _ = fmt.Sscan(line, &w.until, &w.pid, &w.group, &w.told) // the holder writes nothing else
	if w.pid != pid {
		w.members, w.gone = startedUnder(w.pid, w.group, w.mark), false
	}
}

// pause returns how long to wait for a line: less when the deadline is near, so that a
// last-moment renewal is heard.
func (w *watchman) pause(now time.Duration) time.Duration {
	fine := max(w.margin/20, 2*time.Millisecond)
	if w.orphan {
		return fine
	}
	return min(max(fine, w.until-now), time.Second) // timers do not count while a machine is suspended
}

// act ends what the command has started when that is due. It reports whether it does, and whether the guard has nothing
// left to do.
func (w *watchman) act(now time.Duration) (acts, over bool) {
	late := w.until != 0 && now >= w.until+w.margin/8 // the holder has the first chance
	if !w.orphan && !late {
		w.end = nil
		return false, false
	}
	if w.members == nil {
		w.members = startedUnder(0, 0, w.mark)
	}
	if w.end == nil {
		w.end = &ending{members: w.members, kill: now + w.margin/2, told: w.told}
		if w.until != 0 {
			w.end.kill = min(w.end.kill, w.until+w.margin/2)
		}
	}
	w.gone = w.gone || w.end.step(now)
	return !w.gone, w.gone && w.orphan
}
