//go:build !unix

package main

import "syscall"

func guard() int { return exitFailed }

func raise(syscall.Signal) {}

// hold would need process groups.
func hold(task, held, teller) error {
	return unbegun(exitFailed, "commands are run on Unix only: it ends process groups")
}
