package testchild

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill a child whose parent has died, even a stopped child.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
