//go:build unix

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// forwarded has the signals that are passed on to the command.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT,
}

// A job is the command. On a terminal it shares this process's group, so that it can use the terminal, and the shell
// stops and continues both. Elsewhere it has a group of its own.
type job struct {
	task
	lease held
	t     teller

	pid      int    // the command's
	terminal int    // the descriptor of the terminal that the command shares with us; -1: none
	members  group  // what the command has started, and the command
	mark     string // in the environment of that
	guard    *guardian

	told    bool                    // a signal that ends commands has come
	ended   chan syscall.WaitStatus // of the command
	signals chan os.Signal
}

// markName is the variable that has the marks of this run, and of those that it is run under.
const markName = "MONGOLOCK_MARK"

// hold runs the command to its end, or ends it with the lease. When hold returns, nothing is left of what it has
// started, as far as that can be found (startedUnder).
func hold(task task, lease held, t teller) error {
	j := &job{
		task: task, lease: lease, t: t, mark: rand.Text(), terminal: terminal(),
		ended:   make(chan syscall.WaitStatus, 1),
		signals: make(chan os.Signal, 16),
	}
	for _, s := range forwarded { // before the caller stops doing so
		if !signal.Ignored(s) { // as under nohup: then the command ignores it too
			signal.Notify(j.signals, s)
		}
	}
	defer signal.Stop(j.signals)
	if err := j.begin(); err != nil {
		return err
	}
	var err error
	if j.guard, err = startGuard(lease, j.margin(), j.TTL, j.mark, t); err != nil {
		return unbegun(exitFailed, "the guard cannot be started: %s", sentence(err))
	}
	defer j.guard.dismiss()
	if err := lease.Err(); err != nil {
		return unbegun(exitLost, "lost %s before the command was started: %s", j.key, reason(err))
	}
	// A closed standard error must not end this process. The command does not inherit this.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if err := j.start(); err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return unbegun(exitNotRun, "%s: %s", j.Command[0], sentence(err))
	}
	return j.watch()
}

// start starts the command. It is called on the main thread: see pdeathsig.
func (j *job) start() error {
	cmd := &exec.Cmd{Path: j.path, Args: j.Command, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	cmd.Env = append(j.environment(), markName+"="+os.Getenv(markName)+"."+j.mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: j.terminal < 0}
	pdeathsig(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return err
	}
	j.pid = cmd.Process.Pid
	group := 0
	if cmd.SysProcAttr.Setpgid {
		group = j.pid
	}
	j.members = startedUnder(j.pid, group, j.mark)
	j.guard.began(j.pid, group)
	go j.wait() // ends with the command, or this process
	return nil
}

// wait reports the command's end. The first process of a container also waits for the orphans that it inherits.
func (j *job) wait() {
	whom := j.pid
	if os.Getpid() == 1 {
		whom = -1
	}
	for {
		var state syscall.WaitStatus
		switch pid, err := syscall.Wait4(whom, &state, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return
		case pid == j.pid:
			j.ended <- state
		}
	}
}

// watch waits for the end of the command or of the lease.
func (j *job) watch() error {
	for {
		select {
		case s := <-j.signals:
			j.pass(s.(syscall.Signal))
		case state := <-j.ended:
			lost := j.lease.Err()
			living, left := j.members.look()
			if lost == nil && !j.told && len(left) > 0 {
				j.t.tell("left", fmt.Sprintf("the command has ended and left processes, which are ended now: %s (env -u %s starts one that is not)", strings.Join(left, ", "), markName), nil)
			}
			if living {
				j.settle(nil)
			}
			switch {
			case lost != nil:
				return j.lost(lost)
			case j.guard.dismiss() && codeOf(state) != 0:
				return j.lost(errGuarded)
			}
			return j.over(state)
		case <-j.lease.Done():
			lost := j.lease.Err()
			j.t.tell("lost", fmt.Sprintf("lost %s, ending the command: %s", j.key, reason(lost)), map[string]any{"reason": reason(lost)})
			j.settle(j.ended)
			return exitf(exitLost, "")
		}
	}
}

// pass passes a signal on.
func (j *job) pass(s syscall.Signal) {
	j.told = j.told || slices.Contains([]syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}, s)
	j.members.look() // also so that it is known whose children they are if the command ends by the signal
	switch {
	case j.terminal < 0:
		processGroup(j.pid).signal(s)
	case (s == syscall.SIGINT || s == syscall.SIGQUIT) && foreground(j.terminal): // it was typed, and the command has got it too
	default:
		j.members.signal(s)
	}
}

// errGuarded may come before the lease's own end is noticed, because this process was stopped, or slow.
var errGuarded = errors.New("the guard has ended the command, because it had no answer until the lease was over")

func (j *job) lost(err error) error {
	text := fmt.Sprintf("lost %s while the command ran: %s", j.key, reason(err))
	j.t.tell("lost", text, map[string]any{"reason": reason(err)})
	return &exitError{code: exitLost, told: true}
}

// killTakes is how long SIGKILL may take to end processes on a busy machine.
const killTakes = time.Second

// settle ends what is left of it: with SIGTERM now, and with SIGKILL half a margin later, or half a margin after the
// lease's deadline if that is sooner. It returns when no process is left. ended reports the command's end; it is nil if
// the command has ended.
func (j *job) settle(ended <-chan syscall.WaitStatus) {
	half, now := j.margin()/2, machineTime()
	end := &ending{members: j.members, kill: now + half}
	if j.lease.Err() != nil { // else the command left processes behind, and the lease goes on
		end.kill = min(now, j.guard.deadline()) + half
	}
	j.guard.ends()
	patience := max(now, end.kill) + max(half, killTakes)
	for told := false; ; {
		looked := machineTime()
		if end.step(looked) && ended == nil {
			return
		}
		if !told && looked >= patience {
			told = true
			j.t.tell("alive", fmt.Sprintf("what the command (process %d) has started does not end by SIGKILL; others may be granted %s. If it runs as another user, use sudo mongolock run …, not mongolock run … sudo", j.pid, j.key), nil)
		}
		select {
		case <-ended:
			ended = nil
		case <-j.signals: // it is being ended already
		case <-time.After(max(2*time.Millisecond, machineTime()-looked)): // a look takes a while on a machine with many processes
		}
	}
}

// over reports how the command ended, and ends this process in the same way.
func (j *job) over(state syscall.WaitStatus) error {
	code := codeOf(state)
	j.t.tell("ended", "", map[string]any{"code": code})
	if code == 0 {
		return nil
	}
	e := &exitError{code: code, told: j.told}
	if state.Signaled() {
		e.signal = state.Signal()
	}
	return e
}

func codeOf(state syscall.WaitStatus) int {
	if state.Signaled() {
		return exitSignal + int(state.Signal())
	}
	return state.ExitStatus()
}

// raise ends this process by the signal that ended the command, so that a process that waits
// for this one sees the same as if the command had run alone. It returns if that is impossible.
func raise(s syscall.Signal) {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP: // for others the runtime would print all stacks
		if os.Getpid() != 1 { // the kernel does not apply default actions to the first process
			signal.Reset(s)
			_ = syscall.Kill(os.Getpid(), s)
			time.Sleep(time.Second) //nolint:forbidigo // the process ends here
		}
	}
}

// terminal returns the descriptor of the terminal that the command will use, or -1.
func terminal() int {
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if fd := int(f.Fd()); term.IsTerminal(fd) {
			return fd
		}
	}
	return -1
}

// foreground reports whether this process's group is the terminal's foreground group.
func foreground(tty int) bool {
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
