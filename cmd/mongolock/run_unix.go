//go:build unix

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// forwarded has the signals that are passed on to the command.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
}

// ending has those of them that are meant to end it.
var ending = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// A job is the command, run in a process group of its own.
type job struct {
	task
	lease held
	t     teller

	pid      int    // the command's, and the ID of its process group
	group    group  // what it has started
	mark     string // in the environment of that
	terminal int    // the descriptor of the terminal that the command shares with us; -1: none
	tty      bool   // the command was put into the terminal's foreground
	guard    *guardian
	clock    monotonic.Clock
	deadline monotonic.Moment // the lease's, as last known

	told     bool                    // a signal that ends commands was passed on
	foreign  bool                    // it was said that the command became another user
	states   chan syscall.WaitStatus // of the command: stopped, then at last ended
	signals  chan os.Signal
	children chan os.Signal // of the first process of a container, which inherits orphans
}

// markName is the variable that has the marks of this run, and of those that it is run under.
const markName = "MONGOLOCK_MARK"

// hold runs the command to its end, or ends it with the lease. When hold returns, nothing is left of what it has
// started, as far as that can be found (startedUnder).
func hold(task task, lease held, t teller) error {
	j := &job{
		task: task, lease: lease, t: t, mark: rand.Text(),
		clock:   monotonic.CountingSleep(monotonic.NewMeter()),
		states:  make(chan syscall.WaitStatus, 1),
		signals: make(chan os.Signal, 16),
	}
	j.note()
	j.listen() // before the caller stops doing so
	defer signal.Stop(j.signals)
	if err := j.begin(); err != nil {
		return err
	}
	if os.Getpid() == 1 {
		j.children = make(chan os.Signal, 1)
		signal.Notify(j.children, syscall.SIGCHLD)
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
		return unbegun(exitNotRun, "%s: %s", j.Command[0], sentence(err))
	}
	return j.watch()
}

// listen takes the signals that are meant for the command.
func (j *job) listen() {
	for _, s := range forwarded {
		if !signal.Ignored(s) { // as under nohup: then the command ignores it too
			signal.Notify(j.signals, s)
		}
	}
}

// start starts the command. It is called on the main thread: see pdeathsig.
func (j *job) start() error {
	j.terminal = terminal()
	j.tty = j.terminal >= 0 && foreground(j.terminal)
	cmd, started, err := j.guard.starter(j.path, j.Command)
	if err != nil {
		return err
	}
	cmd.Env = append(j.environment(), markName+"="+os.Getenv(markName)+"."+j.mark)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: j.tty, Ctty: max(j.terminal, 0)}
	pdeathsig(cmd.SysProcAttr)
	err = cmd.Start()
	refused := started(j.lease.Remaining())
	if err != nil {
		return err
	}
	j.pid = cmd.Process.Pid
	if refused != "" {
		_ = cmd.Wait() // it has said what is wrong
		j.retake()
		return errors.New(refused)
	}
	j.group = startedUnder(j.pid, j.mark)
	j.guard.began(j.pid)
	go j.wait() // ends with the command
	return nil
}

// wait reports when the command stops and when it ends. From its end on another process may get
// the command's ID, but not the ID of its group while the group has a member.
func (j *job) wait() {
	for {
		var state syscall.WaitStatus
		_, err := syscall.Wait4(j.pid, &state, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		j.states <- state
		if err != nil || state.Exited() || state.Signaled() {
			return
		}
	}
}

// watch waits for the end of the command or of the lease.
func (j *job) watch() error {
	tick := time.NewTicker(max(j.TTL/50, 5*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			j.note()
		case s := <-j.signals:
			if s == syscall.SIGCONT {
				j.resume()
				continue
			}
			if slices.Contains(ending, s) {
				j.told = true
				j.group.look() // so that it is known whose children they are if the command ends first
			}
			j.tellForeign(processGroup(j.pid).signal(s.(syscall.Signal)))
		case state := <-j.states:
			if state.Stopped() {
				j.stop(state.StopSignal())
				continue
			}
			lost := j.lease.Err()
			living, left := j.group.look()
			if lost == nil && !j.told && len(left) > 0 {
				j.t.tell("left", fmt.Sprintf("the command has ended and left processes, which are ended now: %s (env -u %s starts one that is not)", strings.Join(left, ", "), markName), nil)
			}
			if j.retake(); living {
				j.settle(nil)
			}
			switch {
			case lost != nil:
				return j.lost(lost)
			case j.guard.dismiss() && codeOf(state) != 0:
				return j.lost(errGuarded)
			}
			return j.ended(state)
		case <-j.children:
			reap(j.pid, j.guard.pid)
		case <-j.lease.Done():
			lost := j.lease.Err()
			j.t.tell("lost", fmt.Sprintf("lost %s, ending the command: %s", j.key, reason(lost)), map[string]any{"reason": reason(lost)})
			j.settle(j.states)
			return exitf(exitLost, "")
		}
	}
}

// errGuarded may come before the lease's own end is noticed, because this process was stopped, or slow.
var errGuarded = errors.New("the guard has ended the command, because it had no answer until the lease was over")

func (j *job) lost(err error) error {
	text := fmt.Sprintf("lost %s while the command ran: %s", j.key, reason(err))
	j.t.tell("lost", text, map[string]any{"reason": reason(err)})
	return &exitError{code: exitLost, told: true}
}

// note keeps the lease's deadline, which is not known any more once it has passed.
func (j *job) note() {
	now := j.clock.Now()
	if left := j.lease.Remaining(); left > 0 {
		j.deadline = now.Add(left)
	}
}

// kill sends a signal to all that the command has started.
func (j *job) kill(all ...syscall.Signal) { j.tellForeign(j.group.signal(all...)) }

// tellForeign says once that a signal may not be sent.
func (j *job) tellForeign(err error) {
	if text := foreignText(j.pid, err); text != "" && !j.foreign {
		j.foreign = true
		j.t.tell("foreign", text, nil)
	}
}

// killTakes is how long SIGKILL may take to end processes on a busy machine.
const killTakes = time.Second

// settle ends what is left of it: with SIGTERM now, and with SIGKILL half a margin
// later, or half a margin after the lease's deadline if that is sooner. It returns when no
// process is left. states reports the command's end; it is nil if the command has ended.
func (j *job) settle(states <-chan syscall.WaitStatus) {
	j.guard.ending()
	half := j.margin() / 2
	now := j.clock.Now()
	last := min(now, j.deadline).Add(half)
	if j.lease.Err() == nil {
		last = now.Add(half) // the command left processes behind, and the lease goes on
	}
	j.kill(syscall.SIGTERM, syscall.SIGCONT) // which lets stopped processes get the first
	var killed monotonic.Moment              // none: not yet
	told, pause := false, 2*time.Millisecond
	for {
		now := j.clock.Now()
		if now >= last {
			j.kill(syscall.SIGKILL) // repeatedly, because a member may have forked meanwhile
			if killed == 0 {
				killed = now
			}
		}
		select {
		case state := <-states:
			if state.Stopped() {
				continue
			}
			states = nil
		case <-j.signals: // it is being ended already
		case <-j.children:
			reap(j.pid, j.guard.pid)
		case <-time.After(pause):
		}
		looked := j.clock.Now()
		if living, _ := j.group.look(); states == nil && !living {
			break
		}
		pause = max(2*time.Millisecond, j.clock.Since(looked)) // a look takes a while on a machine with many processes
		if killed != 0 && !told && now >= killed.Add(max(half, killTakes)) {
			told = true
			j.t.tell("alive", fmt.Sprintf("what the command (process group %d) has started does not end by SIGKILL; others may be granted %s", j.pid, j.key), nil)
		}
	}
	j.retake()
}

// ended reports how the command ended, and ends this process in the same way.
func (j *job) ended(state syscall.WaitStatus) error {
	j.t.tell("ended", "", map[string]any{"code": codeOf(state)})
	if state.Exited() {
		if n := state.ExitStatus(); n != 0 {
			return &exitError{code: n, told: j.told}
		}
		return nil
	}
	s := state.Signal()
	return &exitError{code: exitSignal + int(s), signal: s, typed: j.tty, told: j.told}
}

func codeOf(state syscall.WaitStatus) int {
	if state.Signaled() {
		return exitSignal + int(state.Signal())
	}
	return state.ExitStatus()
}
