//go:build unix && !linux

package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const machineClock = unix.CLOCK_MONOTONIC

// pdeathsig does nothing: only Linux can tie a command's end to its parent's. The guard
// ends it.
func pdeathsig(*syscall.SysProcAttr) {}

// startedUnder returns the plain group: nothing else of what a command starts is known.
func startedUnder(pid, group int, _ string) group { return plainGroup(pid, group) }

func rename() {}
