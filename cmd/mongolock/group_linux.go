package main

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pdeathsig makes the kernel kill the command when the thread that starts it ends, for any
// reason. It does not reach the processes that the command starts: the guard does.
func pdeathsig(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// continuable reports whether this process's group has a shell that can continue it when it is
// stopped: a parent outside of the group and in the session. Without one the kernel would not
// let a terminal stop the group either.
func continuable() bool {
	group, err := syscall.Getpgid(0)
	if err != nil {
		return false
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for pid := os.Getppid(); pid > 1; pid = parentOf(pid) {
		if of, err := unix.Getsid(pid); err != nil || of != session {
			return false
		}
		if of, err := syscall.Getpgid(pid); err != nil || of != group {
			return err == nil
		}
	}
	return false
}

// reap waits for the zombies that this process has inherited, which nobody else waits for: all of
// its children but those two.
func reap(command int, guard func() int) {
	pids, _ := processIDs() // without /proc none is known
	for _, p := range processesOf(pids) {
		if p.state == 'Z' && p.parent == os.Getpid() && p.pid != command && p.pid != guard() {
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

func parentOf(pid int) int {
	p, _ := processOf(strconv.Itoa(pid)) // 0 if it has ended
	return p.parent
}

// rename gives the guard a name of its own, so that `pkill -9 mongolock` does not end it.
func rename() {
	name := append([]byte("lockguard"), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0) // the guard works without the name
}
