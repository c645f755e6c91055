//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// A group is a command; the processes that it started cannot be reached on this system.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd) group { return group{cmd} }

func (g group) interrupt() { g.cmd.Process.Kill() }
func (g group) kill()      { g.cmd.Process.Kill() }

func signalOf(*os.ProcessState) (int, bool) { return 0, false }
