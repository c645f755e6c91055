//go:build !unix

package main

import "syscall"

func isGuard() bool { return false }

func guard() int { return exitFailed }

func raise(syscall.Signal, bool) {}

// hold would need process groups.
func hold(task, held, teller) error {
	return exitf(exitFailed, "commands are run on Unix only: it ends process groups")
}
