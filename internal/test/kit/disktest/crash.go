package disktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
)

const (
	// Role is the role of a child process that runs Dies.
	Role = "dies"
	// Fault is an environment variable. It names a switch of package knob that a child turns
	// on, if it is built with -tags knobs.
	Fault = "DISKTEST_FAULT"
)

// An order tells a child where it works, and after which step it dies.
type order struct {
	Dir  string
	Step int
}

// InMemory returns a directory of the host without a disk behind it, if there is one. Only
// power cuts need syncs, and those are tested with a Disk. For all else a sync is a wait.
func InMemory(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "mongolock") //nolint:usetesting // where the directory is, is the point
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// cutAtEachStep returns what any power cut during the work would lose: after each step and
// each acknowledgement, with everything that a power cut at that moment could leave.
func cutAtEachStep(open Open) (lost []string, ends map[string]int) {
	ends = make(map[string]int)
	disk, step, done := NewDisk(), 0, make(acknowledged)
	cut := func() {
		step++
		for left := range disk.AfterPowerCut() {
			for _, l := range done.compare(open, left, ends) {
				lost = append(lost, fmt.Sprintf("power cut at step %d: %s", step, l))
			}
		}
	}
	work(open, Steps(disk, cut), func(call, name, token string) {
		done.add(call, name, token)
		cut()
	})
	return lost, ends
}

// killAtEachStep returns what processes lost that were killed at each step of the work.
func killAtEachStep(t testing.TB, open Open, fault string) (lost []string, ends map[string]int) {
	t.Helper()
	ends = make(map[string]int)
	steps := 0
	work(open, Steps(NewDisk(), func() { steps++ }), func(string, string, string) {})
	root := InMemory(t)
	var mu sync.Mutex // protects lost and ends
	var all sync.WaitGroup
	free := make(chan struct{}, 4)
	for step := 1; step <= steps; step++ {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			dir := filepath.Join(root, fmt.Sprint(step))
			done, err := runUntilKilled(t, order{dir, step}, fault)
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("the process that should die at step %d of %d: %v", step, steps, err)
			}
			disk, err := hostfile.OpenDisk(dir)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, l := range done.compare(open, disk, ends) {
				lost = append(lost, fmt.Sprintf("killed at step %d: %s", step, l))
			}
		})
	}
	all.Wait()
	return lost, ends
}

// runUntilKilled runs a child that dies, and returns what was acknowledged until then.
func runUntilKilled(t testing.TB, o order, fault string) (acknowledged, error) {
	t.Helper()
	cmd := testchild.Command(t, Role, o, Fault+"="+fault)
	cmd.Stderr = os.Stderr
	out, killed := cmd.Output()
	done := make(acknowledged)
	for line := range strings.Lines(string(out)) {
		var call, name, token string
		if _, err := fmt.Sscan(line, &call, &name, &token); err != nil {
			return nil, fmt.Errorf("it printed %q: %w", line, err)
		}
		done.add(call, name, token)
	}
	return done, killed
}

// Dies is the role of a child that works until it is killed.
func Dies(open Open) testchild.Role {
	return testchild.As(func(_ context.Context, o order) error {
		disk, err := hostfile.OpenDisk(o.Dir)
		if err != nil {
			return err
		}
		work(open, dieAt(disk, o.Step), func(call, name, token string) { fmt.Fprintln(os.Stdout, call, name, token) })
		return errors.New("the child has not been killed")
	})
}

// dieAt returns a disk that kills its process after a step, counted from 1.
func dieAt(disk hostfile.Disk, step int) hostfile.Disk {
	return Steps(disk, func() {
		if step--; step > 0 {
			return
		}
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {}
	})
}
