package servers

import "syscall"

// detached protects a process from the terminal's interrupt, and makes it die with us, even if we are
// killed and cannot stop it. A session of its own gives it a fair share of a busy machine, as sessions
// share the processors alike.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
