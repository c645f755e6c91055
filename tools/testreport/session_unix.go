//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// apart gives the tests a session of their own. Linux shares the processors alike among
// sessions: beside twenty processes that compute, tests have half a machine and not a tenth.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// passSignals gives the session the signals that the terminal gave it before, until stop.
func passSignals(leader *os.Process) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for s := range signals {
			_ = syscall.Kill(-leader.Pid, s.(syscall.Signal)) //nolint:forcetypeassert // always
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}
