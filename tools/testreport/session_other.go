//go:build !unix

package main

import (
	"os"
	"os/exec"
)

func apart(*exec.Cmd) {}

func passSignals(*os.Process) (stop func()) { return func() {} }
