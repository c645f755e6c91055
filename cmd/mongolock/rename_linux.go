package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rename gives the guard a name of its own, so that `pkill -9 mongolock` leaves it to do
// its work.
func rename() {
	name := append([]byte("lockguard"), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0) // a name is no condition
}
