package pathlock_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/hostfile/disktest"
	"github.com/mongolock/mongolock/pathlock"
)

var lockedInTurn = []string{"/a", "/a/b"}

// lockInTurn locks paths, refreshes them and releases one, and says so after each answer.
func lockInTurn(storage pathlock.Storage, say func(word, path, token string)) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx := context.Background()
	tree, err := pathlock.New(storage, "tree")
	must(err)
	tokens := make(map[string]string)
	lock := func(path string) {
		l, err := tree.Lock(ctx, exclusive(path, time.Hour))
		must(err)
		tokens[path] = l.Token
		say("locked", path, l.Token)
	}
	refresh := func(path string) {
		_, err = tree.Refresh(ctx, tokens[path], 10*time.Hour)
		must(err)
		say("refreshed", path, tokens[path])
	}
	lock("/a")
	refresh("/a")
	lock("/a/b")
	must(tree.Release(ctx, "/a", tokens["/a"]))
	say("released", "/a", tokens["/a"])
	refresh("/a/b")
	must(tree.Close())
}

// A memo is what was acknowledged before a crash: of each path the last word and the
// token.
type memo map[string]struct{ word, token string }

func (m memo) say(word, path, token string) { m[path] = struct{ word, token string }{word, token} }

// judge compares what a crash left with what was acknowledged. It counts in ends how
// each path was found.
func (m memo) judge(storage pathlock.Storage, ends map[string]int) (lost []string) {
	ctx := context.Background()
	fail := func(format string, args ...any) { lost = append(lost, fmt.Sprintf(format, args...)) }
	tree, err := pathlock.New(storage, "tree")
	if err != nil {
		fail("%v", err)
		return lost
	}
	defer tree.Close()
	all, err := tree.Locks(ctx)
	if err != nil {
		fail("%v", err)
	}
	for _, path := range lockedInTurn {
		var found pathlock.Lock
		for _, l := range all {
			if l.Path == path {
				found = l
			}
		}
		held := found.Token != "" && (found.Token == m[path].token || m[path].word == "")
		ends[fmt.Sprintf("%s, held %v", m[path].word, held)]++
		switch m[path].word {
		case "locked": // and perhaps refreshed
			if !held {
				fail("the lock of %s is lost: %+v", path, all)
			}
		case "refreshed": // and perhaps released
			if !held && path != "/a" || held && found.Left < 9*time.Hour {
				fail("the refresh of %s is lost: %+v", path, all)
			}
		case "released":
			if found.Token != "" {
				fail("the release of %s is lost: %+v", path, all)
			}
		}
	}
	if _, err := tree.Lock(ctx, exclusive("/next", time.Hour)); err != nil {
		fail("and it does not go on: %v", err)
	}
	return lost
}

// everyHalf wants each half of each call to have been hit, or a test shows nothing.
func everyHalf(t *testing.T, ends map[string]int) {
	t.Helper()
	t.Logf("seen: %v", ends)
	for _, end := range []string{", held false", ", held true", "locked, held true", "refreshed, held true", "refreshed, held false", "released, held false"} {
		if ends[end] == 0 {
			t.Errorf("no crash left a path %q", end)
		}
	}
}

// dieAtStep works, and is killed after the step whose number it was given.
func dieAtStep(dir, number string) {
	var step int
	if _, err := fmt.Sscan(number, &step); err != nil {
		panic(err)
	}
	disk, err := hostfile.OpenDisk(dir)
	if err != nil {
		panic(err)
	}
	lockInTurn(pathlock.OnDisk(disktest.DieAt(disk, step)), func(word, path, token string) { fmt.Println(word, path, token) })
	panic("still alive")
}

// killAtEachStep answers what processes lost that were killed at each step of the work.
func killAtEachStep(t *testing.T, fault string) (lost []string, ends map[string]int) {
	t.Helper()
	ends = make(map[string]int)
	root := disktest.InMemory(t)
	dir := func(step int) string { return filepath.Join(root, fmt.Sprint(step)) }
	disktest.KillAtEachStep(t,
		func(disk hostfile.Disk) { lockInTurn(pathlock.OnDisk(disk), func(string, string, string) {}) },
		func(step int) []string {
			return []string{childPlace + "=" + dir(step), fmt.Sprint(childStep, "=", step), childFault + "=" + fault}
		},
		func(step int, said []string) {
			told := make(memo)
			for _, line := range said {
				var word, path, token string
				if _, err := fmt.Sscan(line, &word, &path, &token); err != nil {
					t.Error(err)
				}
				told.say(word, path, token)
			}
			storage, err := pathlock.InDir(dir(step))
			if err != nil {
				t.Error(err)
				return
			}
			defer storage.Close()
			for _, l := range told.judge(storage, ends) {
				lost = append(lost, fmt.Sprintf("killed at step %d: %s", step, l))
			}
		})
	return lost, ends
}

func TestAKillAtAnyWriteLosesNoAcknowledgedLock(t *testing.T) {
	lost, ends := killAtEachStep(t, "")
	for _, l := range lost {
		t.Error(l)
	}
	everyHalf(t, ends)
}

// cutAtEachStep answers what was lost by any power cut during the work.
func cutAtEachStep() (lost []string, ends map[string]int) {
	ends = make(map[string]int)
	told := make(memo)
	disktest.CutAtEachStep(
		func(disk hostfile.Disk, answered func()) {
			lockInTurn(pathlock.OnDisk(disk), func(word, path, token string) {
				told.say(word, path, token)
				answered()
			})
		},
		func(step int, left hostfile.Disk) {
			for _, l := range told.judge(pathlock.OnDisk(left), ends) {
				lost = append(lost, fmt.Sprintf("power cut at step %d: %s", step, l))
			}
		})
	return lost, ends
}

func TestAPowerCutAtAnyWriteLosesNoAcknowledgedLock(t *testing.T) {
	lost, ends := cutAtEachStep()
	for _, l := range lost {
		t.Error(l)
	}
	everyHalf(t, ends)
}
