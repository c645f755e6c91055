//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// raise ends this process by the signal that ended the command, so that a process that waits
// for this one sees the same as if the command had run alone. It returns if that is impossible.
func raise(s syscall.Signal, typed bool) {
	if os.Getpid() == 1 { // the kernel does not apply default actions to the first process
		return
	}
	whom := os.Getpid()
	if typed {
		whom = 0 // the surrounding script would have got the terminal's signal too
	}
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP:
		signal.Reset(s)
		_ = syscall.Kill(whom, s)
		time.Sleep(time.Second) //nolint:forbidigo // the process ends here
	case syscall.SIGQUIT: // the runtime would print all stacks
		if typed {
			signal.Ignore(s)
			_ = syscall.Kill(0, s)
		}
	}
}

// stop follows the command that a signal has stopped, so that the shell sees this job stop.
// Meanwhile the lease is not renewed, and the guard ends the command when the lease is over.
//
// A command that was stopped by SIGSTOP stays so, and so does one that has stopped because it
// used the terminal from the background, unless there is a shell to continue them: it would
// only stop again.
func (j *job) stop(by syscall.Signal) {
	j.retake()
	switch {
	case by == syscall.SIGSTOP && !j.tty: // whoever has sent it continues it
		return
	case continuable():
		signal.Stop(j.signals)               // so that the next signal is not passed on:
		_ = syscall.Kill(0, syscall.SIGTSTP) // for the others of this job; the runtime swallows ours
		stopHere()
		j.listen()
	case by != syscall.SIGTSTP:
		j.t.tell("stopped", fmt.Sprintf("the command has stopped (%s), and keeps %s: SIGCONT to its process group %d continues it", by, j.key, j.pid), nil)
		return
	}
	j.resume()
}

// stopHere stops this process, and returns when it was continued.
func stopHere() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued
}

// onStop has before called when a person stops this process at its terminal, and after once it is in the foreground
// again, until end is called.
func onStop(before, after func()) (end func()) {
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTSTP)
	go func() {
		for range stops {
			if !continuable() {
				continue // as the kernel does
			}
			before()
			for stopHere(); !foreground(int(os.Stdout.Fd())); {
				stopHere() // in the background it would draw over what the shell shows
			}
			after()
		}
	}()
	return func() {
		signal.Stop(stops)
		close(stops)
	}
}

// resume continues the command, in the foreground if this job is there now.
func (j *job) resume() {
	if j.lease.Err() != nil {
		return // the command is being ended
	}
	if j.tty = j.terminal >= 0 && foreground(j.terminal); j.tty {
		_ = unix.IoctlSetPointerInt(j.terminal, unix.TIOCSPGRP, j.pid)
	}
	j.tellForeign(processGroup(j.pid).signal(syscall.SIGCONT))
}

// retake brings this job back into the foreground.
func (j *job) retake() {
	if !j.tty {
		return
	}
	if group, err := unix.IoctlGetInt(j.terminal, unix.TIOCGPGRP); err != nil || group != j.pid {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // otherwise a background process may not take the foreground
	_ = unix.IoctlSetPointerInt(j.terminal, unix.TIOCSPGRP, unix.Getpgrp())
	signal.Reset(syscall.SIGTTOU)
}

// terminal returns the descriptor of the terminal that the command will use, or -1. If only
// standard error is a terminal, another part of a pipeline may want to read it.
func terminal() int {
	for _, f := range []*os.File{os.Stdin, os.Stdout} {
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
