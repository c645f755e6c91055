//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// group is a command; what it started is out of reach here.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd) group { return group{cmd} }

func (g group) interrupt() { g.cmd.Process.Kill() }
func (g group) kill()      { g.cmd.Process.Kill() }

func signalOf(*os.ProcessState) (int, bool) { return 0, false }
