package chaos

import (
	"syscall"
	"time"
	"unsafe"
)

// uptime reads the machine's monotonic clock, which is the same in all its processes.
func uptime() time.Duration {
	const monotonic = 1 // CLOCK_MONOTONIC
	var t syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(t.Nano())
}
