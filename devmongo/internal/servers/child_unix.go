//go:build unix && !linux

package servers

import "syscall"

// detached protects a process from the terminal's interrupt.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}
