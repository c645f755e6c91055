package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const machineClock = unix.CLOCK_BOOTTIME

// pdeathsig makes the kernel kill the command when the thread that starts it ends, for any
// reason. It does not reach the processes that the command starts: the guard does.
func pdeathsig(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// rename gives the guard a name of its own, so that `pkill -9 mongolock` does not end it.
func rename() {
	name := append([]byte("lockguard"), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0) // the guard works without the name
}

// A family is what was started under a lease: the command, its process group, every process with the run's mark in its
// environment, and the descendants of these. So it has what has left the group, as a step under timeout does, and what
// has cleared its environment but not left its parent. A daemon without the mark is not found: that is the way out
// for one that is to live on. (A subreaper would find it, but not once this process was killed, and the guard never.)
type family struct {
	plain processGroup // the command's process group, or the command alone if it shares ours
	mark  string
	born  int64         // when the command's process was started: what is older is no member; 0: not known
	known map[int]int64 // the members so far, and when each was started: they stay members

	living []process // at the last look, which takes a while on a machine with many processes
	blind  bool      // it had no /proc
}

// A process is what the kernel says of one. The times are in its ticks since the machine's start.
type process struct {
	pid, parent, group int
	state              byte
	born               int64
}

func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' } // in a container zombies may never be waited for

// startedUnder returns the family of a command that was just started.
func startedUnder(pid, group int, mark string) group {
	f := &family{plain: plainGroup(pid, group), mark: mark, known: map[int]int64{}}
	if p, _ := processOf(strconv.Itoa(pid)); p.parent == os.Getpid() || p.parent == os.Getppid() { // else it has ended, and another may have its ID
		f.born, f.known[pid] = p.born, p.born
	}
	return f
}

// members returns those that live. Without /proc it returns an error.
//
// A process that starts another and ends while /proc is read may be missed with that one, which is new in the next list.
func (f *family) members() (living []process, err error) {
	known := map[string]bool{}
	for range 10 { // others start processes, too
		pids, err := processIDs()
		if err != nil {
			return nil, err
		}
		pids = slices.DeleteFunc(pids, func(pid string) bool { return known[pid] })
		if living = f.among(processesOf(pids)); len(living) > 0 || len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			known[pid] = true
		}
	}
	return living, nil
}

func (f *family) among(all []process) (living []process) {
	children := map[int][]process{}
	var found []process
	is := map[int]bool{}
	var add func(p process)
	add = func(p process) {
		if !is[p.pid] {
			is[p.pid] = true
			found = append(found, p)
			for _, child := range children[p.pid] {
				add(child)
			}
		}
	}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	for _, p := range all {
		if p.born >= f.born && p.pid != os.Getpid() && (f.grouped(p) || f.known[p.pid] == p.born && p.born > 0 || f.marked(p)) {
			add(p)
		}
	}
	clear(f.known)
	for _, p := range found {
		if !p.dead() {
			f.known[p.pid] = p.born
			living = append(living, p)
		}
	}
	return living
}

func (f *family) grouped(p process) bool { return f.plain > 0 && p.group == int(f.plain) }

// marked reports whether a process has the mark in its environment, as far as this user may read that.
func (f *family) marked(p process) bool {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	return err == nil && f.mark != "" && bytes.Contains(environment, []byte(f.mark))
}

func (f *family) look() (living bool, strays []string) {
	var err error
	f.living, err = f.members()
	if f.blind = err != nil; f.blind {
		return f.plain.look()
	}
	for _, p := range f.living {
		if !f.grouped(p) {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid)) // it may have ended
			strays = append(strays, fmt.Sprintf("%d (%s)", p.pid, bytes.TrimSpace(name)))
		}
	}
	return len(f.living) > 0, strays
}

func (f *family) signal(all ...syscall.Signal) {
	inGroup := f.blind
	for _, p := range f.living {
		if f.grouped(p) {
			inGroup = true
		} else {
			p.signal(all)
		}
	}
	if inGroup { // all at once: none of them can escape by a fork. An empty group's ID may be another's
		f.plain.signal(all...)
	}
}

// signal sends signals to the process, and not to another that has got its ID meanwhile.
func (p process) signal(all []syscall.Signal) {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return
	}
	defer handle.Release() //nolint:errcheck // it is but a handle
	if now, ok := processOf(strconv.Itoa(p.pid)); !ok || now.born != p.born {
		return
	}
	for _, s := range all {
		_ = handle.Signal(s) // fails if it has ended, or is another user's
	}
}

// processIDs returns those of all processes of this machine, or container.
func processIDs() (pids []string, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	return slices.DeleteFunc(names, func(name string) bool { return name[0] < '0' || name[0] > '9' }), err
}

// processesOf returns the processes that are still there.
func processesOf(pids []string) (all []process) {
	for _, pid := range pids {
		if p, ok := processOf(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

// processOf reads what the kernel says of a process. It leaves out its name, which may contain anything.
func processOf(pid string) (p process, ok bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return p, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return p, false
	}
	number := func(text []byte) int {
		n, _ := strconv.Atoi(string(text)) // the kernel writes numbers
		return n
	}
	return process{number([]byte(pid)), number(fields[1]), number(fields[2]), fields[0][0], int64(number(fields[19]))}, true
}
