//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/term"
)

// A group is a command and all processes that it started.
type group struct {
	cmd *exec.Cmd
	// own is false at a terminal, where the command must stay in the foreground to read from it, and
	// where an interrupt reaches all of us.
	own bool
}

// newGroup prepares a command before its start.
func newGroup(cmd *exec.Cmd) group {
	g := group{cmd: cmd, own: !term.IsTerminal(int(os.Stdin.Fd()))}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: g.own}
	return g
}

func (g group) interrupt() { g.signal(syscall.SIGTERM) }
func (g group) kill()      { g.signal(syscall.SIGKILL) }

func (g group) signal(s syscall.Signal) {
	if g.own {
		syscall.Kill(-g.cmd.Process.Pid, s)
		return
	}
	g.cmd.Process.Signal(s)
}

func signalOf(state *os.ProcessState) (int, bool) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0, false
	}
	return int(status.Signal()), true
}
