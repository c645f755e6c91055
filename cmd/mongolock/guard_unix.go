//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/suspend"
)

// The guard is a second process of this program. It knows until when the lease is good,
// and ends the command's process group then if the first one, the holder, does not: because
// it is stopped, or was killed. They talk in lines through two pipes:
//
//	guard → holder   ask 17          until when is the lease good?
//	holder → guard   left 17 9.5e9   so many nanoseconds
//	holder → guard   group 4711      the group to end
//	holder → guard   ending          the holder has sent SIGTERM itself
//	holder → guard   done            nothing is left: the guard is not needed any more
//
// The guard counts what is left from before it asked, on its own clock: an answer that is
// late, or a holder that was stopped before it answered, makes the guard's deadline too
// early, never too late. If the pipe ends without "done", the holder is dead.
const guardName = "mongolock-guard"

func isGuard() bool { return os.Args[0] == guardName }

// A guardian is the holder's side.
type guardian struct {
	cmd *exec.Cmd
	to  io.WriteCloser
}

// startGuard starts the guard and answers its questions until it is dismissed.
func startGuard(lease held, margin, ttl time.Duration) (*guardian, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: self, Args: []string{guardName, margin.String(), ttl.String()}, Env: os.Environ(),
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // no signal for our group is for it
	}
	to, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &guardian{cmd, to}
	lines := bufio.NewScanner(from)
	if !lines.Scan() || lines.Text() != "ready" {
		g.dismiss()
		return nil, fmt.Errorf("it ended at once")
	}
	go func() { // ends with the guard
		for lines.Scan() {
			var question int64
			if _, err := fmt.Sscanf(lines.Text(), "ask %d", &question); err == nil {
				g.send("left %d %d", question, int64(lease.Remaining()))
			}
		}
	}()
	return g, nil
}

// executable is this program, on Linux even if the file was replaced meanwhile.
func executable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// send writes a line. It fails if the guard is dead: then the holder has to do.
func (g *guardian) send(format string, args ...any) {
	_, _ = fmt.Fprintf(g.to, format+"\n", args...) // one write: lines of two goroutines do not mix
}

// dismiss ends the guard and waits for it.
func (g *guardian) dismiss() {
	g.send("done")
	_ = g.to.Close()
	stopped := time.AfterFunc(time.Second, func() { _ = g.cmd.Process.Kill() })
	defer stopped.Stop()
	_ = g.cmd.Wait() // how it ended changes nothing
}

// A watchman is the guard's side.
type watchman struct {
	clock        monotonic.Clock
	margin, tick time.Duration

	asked    map[int64]monotonic.Moment
	question int64
	deadline monotonic.Moment // none until the first answer

	group  int
	ending bool // the holder has sent SIGTERM
	orphan bool // the holder is dead
	kill   monotonic.Moment
}

// guard is the main function of the guard.
func guard() int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	rename()
	if len(os.Args) != 3 {
		return exitFailed
	}
	margin, err := time.ParseDuration(os.Args[1])
	if err != nil {
		return exitFailed
	}
	ttl, err := time.ParseDuration(os.Args[2])
	if err != nil {
		return exitFailed
	}
	w := &watchman{
		clock:  monotonic.CountingSleep(suspend.New()),
		margin: margin, tick: max(ttl/20, 10*time.Millisecond),
		asked: map[int64]monotonic.Moment{},
	}
	lines := make(chan string)
	go func() { // ends with the process
		for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
			lines <- scan.Text()
		}
		close(lines)
	}()
	fmt.Println("ready")
	return w.run(lines)
}

func (w *watchman) run(lines <-chan string) int {
	w.ask()
	for {
		select {
		case line, ok := <-lines:
			switch {
			case !ok && w.group == 0, line == "done":
				return 0
			case !ok:
				w.orphan, lines = true, nil
			default:
				w.hear(line)
			}
		case <-time.After(w.pause()):
			if !w.orphan {
				w.ask()
			}
		}
		if w.act() {
			return 0
		}
	}
}

// pause is how long to wait for a line: less when the deadline is near, so that a renewal
// of the last moment is heard of.
func (w *watchman) pause() time.Duration {
	fine := max(w.margin/20, 2*time.Millisecond)
	if w.orphan || w.ending || w.deadline != 0 && w.clock.Until(w.deadline) < w.tick {
		return min(fine, w.tick)
	}
	return min(w.tick, time.Second) // a machine that was suspended counts no timers
}

func (w *watchman) ask() {
	if len(w.asked) > 100 {
		return // the holder is stopped
	}
	w.question++
	w.asked[w.question] = w.clock.Now()
	fmt.Println("ask", w.question)
}

func (w *watchman) hear(line string) {
	var question, left int64
	if _, err := fmt.Sscanf(line, "left %d %d", &question, &left); err == nil {
		sent, ok := w.asked[question]
		delete(w.asked, question)
		if ok && left > 0 {
			w.deadline = sent.Add(time.Duration(left))
		}
		return
	}
	if n, err := fmt.Sscanf(line, "group %d", &w.group); err == nil && n == 1 {
		return
	}
	if line == "ending" {
		w.ending = true
	}
}

// act ends the group when that is due, and reports whether it has ended.
func (w *watchman) act() bool {
	if w.group == 0 {
		return false
	}
	now := w.clock.Now()
	over := w.deadline != 0 && now >= w.deadline.Add(w.margin/8) // the holder comes first
	if !w.orphan && !over {
		w.kill = 0
		return false
	}
	if w.kill == 0 {
		w.kill = now.Add(w.margin / 2)
		if w.deadline != 0 {
			w.kill = min(w.kill, w.deadline.Add(w.margin/2))
		}
		if !w.ending {
			w.signal(syscall.SIGTERM)
			w.signal(syscall.SIGCONT)
		}
	}
	if now >= w.kill {
		w.signal(syscall.SIGKILL)
	}
	return w.orphan && !living(w.group)
}

func (w *watchman) signal(s syscall.Signal) { _ = syscall.Kill(-w.group, s) }
