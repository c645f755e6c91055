package main

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// pdeathsig makes the kernel kill the command when the thread that starts it ends, for any
// reason. It does not reach the processes that the command starts: the guard does.
func pdeathsig(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// living reports whether the process group has a member that is not a zombie: in a container
// zombies may never be waited for.
func living(group int) bool {
	if err := syscall.Kill(-group, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return true
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return true
	}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		fields := statOf(name)
		if len(fields) > 2 && string(fields[2]) == strconv.Itoa(group) && string(fields[0]) != "Z" && string(fields[0]) != "X" {
			return true
		}
	}
	return false
}

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
	for _, pid := range zombies() {
		if pid != command && pid != guard() {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// zombies returns this process's children that have ended.
func zombies() (all []int) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if fields := statOf(name); len(fields) > 1 && string(fields[0]) == "Z" && string(fields[1]) == strconv.Itoa(os.Getpid()) {
				all = append(all, pid)
			}
		}
	}
	return all
}

func parentOf(pid int) int {
	fields := statOf(strconv.Itoa(pid))
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return parent
}

// statOf returns what the kernel says of a process: state, parent, group. It leaves out the
// process's name, which may contain anything.
func statOf(pid string) [][]byte {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	return bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
}
