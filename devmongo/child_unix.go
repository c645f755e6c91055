//go:build unix && !linux

package devmongo

import "syscall"

// detached puts a process out of reach of the terminal's interrupt.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
