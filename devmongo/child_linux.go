package devmongo

import "syscall"

// detached puts a process out of reach of the terminal's interrupt and lets it die with us, even
// when we are killed and can stop nothing.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
