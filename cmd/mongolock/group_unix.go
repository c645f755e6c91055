//go:build unix

package main

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// machineTime is the time by a clock that all processes of this machine share, and that goes on while it sleeps.
func machineTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(machineClock, &t) // every kernel has that clock
	return time.Duration(t.Nano())
}

// A group is what was started under a lease, as far as it can be found.
type group interface {
	// signal sends signals to those that the last look found, as far as they may be sent.
	signal(all ...syscall.Signal)
	// look reports whether there is a member that has not ended, and names those that have left the command's process
	// group.
	look() (living bool, strays []string)
}

// A processGroup is the process group with that ID, or a process alone with that ID, negated. Zero is nothing.
type processGroup int

// plainGroup returns the process group of a command, or the command alone if it has none of its own.
func plainGroup(pid, group int) processGroup {
	if group == 0 {
		return processGroup(-pid)
	}
	return processGroup(group)
}

func (g processGroup) look() (living bool, strays []string) {
	return g != 0 && !errors.Is(syscall.Kill(-int(g), 0), syscall.ESRCH), nil
}

func (g processGroup) signal(all ...syscall.Signal) {
	for _, s := range all {
		if g != 0 {
			_ = syscall.Kill(-int(g), s) // fails if nothing is left, or all is another user's
		}
	}
}

// An ending ends what was started under a lease.
type ending struct {
	members group
	kill    time.Duration // by machineTime: SIGKILL follows then
	told    bool          // SIGTERM was sent
}

// step does what is due, and reports whether nothing is left.
func (e *ending) step(now time.Duration) (over bool) {
	if living, _ := e.members.look(); !living {
		return true
	}
	if !e.told {
		e.told = true
		e.members.signal(syscall.SIGTERM, syscall.SIGCONT) // which lets stopped processes get the first
	}
	if now >= e.kill {
		e.members.signal(syscall.SIGKILL) // repeatedly, because a member may have forked meanwhile
	}
	return false
}
