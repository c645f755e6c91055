//go:build unix

package servers

import (
	"os"
	"syscall"
)

// The signals that stop a process where it is, and have it go on.
var (
	suspendSignal  os.Signal = syscall.SIGSTOP
	continueSignal os.Signal = syscall.SIGCONT
)
