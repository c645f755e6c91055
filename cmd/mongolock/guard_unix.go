//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/suspend"
)

// The guard is a second process of this program. It knows until when the lease is good, and
// ends the command's process group at that time if the first process, the holder, does not:
// because the holder is stopped, or was killed. They exchange lines through two pipes:
//
//	guard → holder   ready           it is there
//	guard → holder   ask 17          until when is the lease good?
//	holder → guard   left 17 9.5e9   so many nanoseconds
//	guard → holder   knows           it has the first answer: the command may begin
//	command → guard  group 4711      the group to end
//	holder → guard   ending          the holder has sent SIGTERM itself
//	holder → guard   done            nothing is left: the guard is not needed any more
//
// The guard counts the remaining time from before it asked, on its own clock. An answer that is
// late, or a holder that was stopped before it answered, makes the guard's deadline too early,
// never too late. If the pipe ends without "done", the holder is dead.
//
// A holder that is stopped when the command begins could report neither the time nor the group.
// So the guard gets the time before that, and the command's own process reports the group
// before it becomes the command.
const (
	guardName   = "mongolock-guard"
	starterName = "mongolock-starter"
)

// asAnother does the work of the guard, or of the process that becomes the command, if this
// process was started as one of them.
func asAnother() (status int, is bool) {
	switch os.Args[0] {
	case guardName:
		return guard(), true
	case starterName:
		return become(os.Args[1], os.Args[2], os.Args[3:]), true
	}
	return 0, false
}

// A guardian is the holder's side.
type guardian struct {
	cmd *exec.Cmd
	to  *os.File
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
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // signals for our group do not reach it
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin = in
	err = cmd.Start()
	_ = in.Close() // the guard has its own copy
	if err != nil {
		_ = to.Close()
		return nil, err
	}
	g := &guardian{cmd, to}
	lines := bufio.NewScanner(from)
	if !lines.Scan() || lines.Text() != "ready" {
		g.dismiss()
		return nil, errors.New("it ended at once")
	}
	for lease.Err() == nil && lines.Scan() && lines.Text() != "knows" {
		g.answer(lines.Text(), lease)
	}
	go func() { // ends with the guard
		for lines.Scan() {
			g.answer(lines.Text(), lease)
		}
	}()
	return g, nil
}

// answer answers a question of the guard.
func (g *guardian) answer(line string, lease held) {
	var question int64
	if _, err := fmt.Sscanf(line, "ask %d", &question); err == nil {
		g.send("left %d %d", question, int64(lease.Remaining()))
	}
}

// starter makes the command that tells the guard its process group and then becomes the program
// at path. Open files pass through it under their numbers, so the guard's pipe gets a number
// that is free. Call started once the command was started; it closes the pipe.
func (g *guardian) starter(path string, argv []string) (cmd *exec.Cmd, started func(), err error) {
	self, err := executable()
	if err != nil {
		return nil, nil, err
	}
	to, err := syscall.Dup(int(g.to.Fd()))
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
	fmt.Fprintf(os.Stderr, "mongolock: %s: %s\n", shown(argv[0]), sentence(err))
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
	_, _ = fmt.Fprintf(g.to, format+"\n", args...) // one write: lines of two goroutines do not mix
}

// dismiss ends the guard and waits for it.
func (g *guardian) dismiss() {
	g.send("done")
	_ = g.to.Close()
	stopped := time.AfterFunc(time.Second, func() { _ = g.cmd.Process.Kill() })
	defer stopped.Stop()
	_ = g.cmd.Wait() // how it ended does not matter
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

// pause returns how long to wait for a line: less when the deadline is near, so that a
// last-moment renewal is heard.
func (w *watchman) pause() time.Duration {
	fine := max(w.margin/20, 2*time.Millisecond)
	if w.orphan || w.ending || w.deadline != 0 && w.clock.Until(w.deadline) < w.tick {
		return min(fine, w.tick)
	}
	return min(w.tick, time.Second) // timers do not count while a machine is suspended
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
			if w.deadline == 0 {
				fmt.Println("knows")
			}
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
	over := w.deadline != 0 && now >= w.deadline.Add(w.margin/8) // the holder has the first chance
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
