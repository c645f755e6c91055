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
	self, err := syscall.GetCurrentProcess()
	var begun, ended, kernel, user syscall.Filetime
	if err == nil {
		err = syscall.GetProcessTimes(self, &begun, &ended, &kernel, &user)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ticks(kernel) + ticks(user)
}

// ticks are of 100 ns.
func ticks(f syscall.Filetime) time.Duration {
	return time.Duration(int64(f.HighDateTime)<<32|int64(f.LowDateTime)) * 100
}
