package devmongo

import "syscall"

// detached protects a process from the terminal's interrupt, and makes it die with us, even if we are
// killed and cannot stop it.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
