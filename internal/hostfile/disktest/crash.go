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
	"github.com/mongolock/mongolock/internal/testchild"
)

const (
	// Role is that of a child that Dies.
	Role = "dies"
	// Fault is a variable that takes a safety out of any child: with -tags knobs, a
	// switch of package knob.
	Fault = "DISKTEST_FAULT"
)

// An order names where a child works, and after which step of that it dies.
type order struct {
	Dir  string
	Step int
}

// InMemory is a directory of the host without a disk behind it, if there is one. What a
// sync is for, only a power cut shows, and those have a Disk; to all else it is a wait.
func InMemory(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "mongolock") //nolint:usetesting // where the directory is, is the point
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// cutAtEachStep answers what was lost by any power cut during the work: after each step
// of it and each answer, with whatever a power cut at that moment could leave.
func cutAtEachStep(open Open) (lost []string, ends map[string]int) {
	ends = make(map[string]int)
	disk, step, told := NewDisk(), 0, make(memo)
	cut := func() {
		step++
		for left := range disk.AfterPowerCut() {
			for _, l := range told.judge(open, left, ends) {
				lost = append(lost, fmt.Sprintf("power cut at step %d: %s", step, l))
			}
		}
	}
	work(open, Steps(disk, cut), func(word, name, token string) {
		told.say(word, name, token)
		cut()
	})
	return lost, ends
}

// killAtEachStep answers what processes lost that were killed at each step of the work.
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
			told, err := lastWords(t, order{dir, step}, fault)
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("the process that was to die at step %d of %d: %v", step, steps, err)
			}
			disk, err := hostfile.OpenDisk(dir)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, l := range told.judge(open, disk, ends) {
				lost = append(lost, fmt.Sprintf("killed at step %d: %s", step, l))
			}
		})
	}
	all.Wait()
	return lost, ends
}

// lastWords runs a child that dies, and answers what it said until then.
func lastWords(t testing.TB, o order, fault string) (memo, error) {
	t.Helper()
	cmd := testchild.Command(t, Role, o, Fault+"="+fault)
	cmd.Stderr = os.Stderr
	out, killed := cmd.Output()
	told := make(memo)
	for line := range strings.Lines(string(out)) {
		var word, name, token string
		if _, err := fmt.Sscan(line, &word, &name, &token); err != nil {
			return nil, fmt.Errorf("it says %q: %w", line, err)
		}
		told.say(word, name, token)
	}
	return told, killed
}

// Dies is what such a child does: the work, until it is killed.
func Dies(open Open) testchild.Role {
	return testchild.As(func(_ context.Context, o order) error {
		disk, err := hostfile.OpenDisk(o.Dir)
		if err != nil {
			return err
		}
		work(open, dieAt(disk, o.Step), func(word, name, token string) { fmt.Fprintln(os.Stdout, word, name, token) })
		return errors.New("it is still alive")
	})
}

// dieAt is a disk that kills its process after that step, counted from 1.
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
