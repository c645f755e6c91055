//go:build unix && !linux

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pdeathsig does nothing: only Linux can tie a command's end to its parent's. The guard
// ends it.
func pdeathsig(*syscall.SysProcAttr) {}

// startedUnder returns the process group of a command: nothing else of what it starts is known.
func startedUnder(group int, _ string) group { return processGroup(group) }

// continuable reports whether this process has a parent that can continue it when it is
// stopped: one in its session.
func continuable() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	of, err := unix.Getsid(os.Getppid())
	return err == nil && of == session
}

// reap does nothing: there are no containers whose first process this could be.
func reap(int, func() int) {}

func rename() {}
