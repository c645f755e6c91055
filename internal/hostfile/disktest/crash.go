package disktest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/mongolock/mongolock/internal/hostfile"
)

// InMemory is a directory of the host without a disk behind it, if there is one. What a
// sync is for, only a power cut shows, and CutAtEachStep has those; to all else it is a
// wait.
func InMemory(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "mongolock") //nolint:usetesting // where the directory is, is the point
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// CutAtEachStep has some work done on a disk, and shows judge, after each step of it and
// whenever the work says that it has an answer, each disk that a power cut at that moment
// could leave.
func CutAtEachStep(work func(disk hostfile.Disk, answered func()), judge func(step int, left hostfile.Disk)) {
	disk, step := NewDisk(), 0
	cut := func() {
		step++
		for left := range disk.AfterPowerCut() {
			judge(step, left)
		}
	}
	work(Steps(disk, cut), cut)
}

// DieAt is a disk that kills its process after that step, counted from 1.
func DieAt(disk hostfile.Disk, step int) hostfile.Disk {
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

// KillAtEachStep runs this program for each step of some work, as a child that does the
// work on a disk that DieAt made, and shows judge what the child had said until then,
// line by line. A child ends with its standard input.
func KillAtEachStep(t testing.TB, work func(hostfile.Disk), env func(step int) []string, judge func(step int, said []string)) {
	t.Helper()
	steps := 0
	work(Steps(NewDisk(), func() { steps++ }))
	var mu sync.Mutex // one judge at a time
	var all sync.WaitGroup
	defer all.Wait()
	free := make(chan struct{}, 4)
	for step := 1; step <= steps; step++ {
		free <- struct{}{}
		environment := append(os.Environ(), env(step)...)
		all.Go(func() {
			defer func() { <-free }()
			said, err := lastWords(environment)
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("the process that was to die at step %d of %d: %v", step, steps, err)
			}
			mu.Lock()
			defer mu.Unlock()
			judge(step, said)
		})
	}
}

// lastWords runs this program to its end.
func lastWords(env []string) (said []string, err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = env, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
	}
	return said, cmd.Wait()
}

// EndWithParent ends a child whose parent is gone.
func EndWithParent() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}
