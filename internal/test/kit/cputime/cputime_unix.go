//go:build unix

// Package cputime measures what a test costs, not how long it takes beside others.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Used is what this process has used of processors: what others use of them takes nothing of it.
func Used(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
