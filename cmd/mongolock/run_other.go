//go:build !unix

package main

import (
	"syscall"

	"github.com/mongolock/mongolock"
)

func isGuard() bool { return false }

func guard() int { return exitFailed }

func raise(syscall.Signal, bool) {}

// hold would need process groups.
func (c *runCmd) hold(string, *mongolock.Lease, teller) error {
	return exitf(exitFailed, "run works on Unix only: it ends process groups")
}
