package filestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/hostfile/disktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
)

func mine(key string) store.Claim {
	return store.Claim{
		Ref:   store.Ref{Key: key, ID: "the id of " + key, Mode: store.Exclusive},
		Limit: 1, TTL: time.Hour, Owner: "child",
	}
}

var workedOn = []string{"a", "b"}

// work takes keys, renews them and releases one, and says so after each answer.
func work(s *filestore.Store, say func(word, key string, token int64)) {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	take := func(key string) {
		g, err := s.Acquire(ctx, mine(key))
		must(err)
		say("granted", key, g.Token)
	}
	renew := func(key string) {
		must(s.Renew(ctx, []store.Renewal{{Ref: mine(key).Ref, TTL: 10 * time.Hour}})[0].Err)
		say("renewed", key, 0)
	}
	take("a")
	renew("a")
	take("b")
	_, err := s.Release(ctx, mine("a").Ref, 0)
	must(err)
	say("released", "a", 0)
	renew("b")
}

// A ledger is what was acknowledged before a crash: the last word of each key, and the
// last token.
type ledger struct {
	words map[string]string
	last  int64
}

func newLedger() *ledger { return &ledger{words: make(map[string]string)} }

func (l *ledger) say(word, key string, token int64) {
	l.words[key], l.last = word, max(l.last, token)
}

// judge compares what a crash left with what was acknowledged. It counts in ends how
// each key was found.
func (l *ledger) judge(s *filestore.Store, ends map[string]int) (lost []string) {
	ctx := context.Background()
	fail := func(format string, args ...any) { lost = append(lost, fmt.Sprintf(format, args...)) }
	for _, key := range workedOn {
		all, err := s.Look(ctx, []string{key})
		if err != nil {
			fail("%s, %s: %v", key, l.words[key], err)
			continue
		}
		status := all[0]
		held := len(status.Holders) == 1 && status.Holders[0].ID == mine(key).ID && !status.Free()
		ends[fmt.Sprintf("%s, held %v", l.words[key], held)]++
		switch l.words[key] {
		case "granted": // and perhaps renewed
			if !held {
				fail("the grant of %s is lost: %+v", key, status)
			}
		case "renewed": // and perhaps released
			if !held && (key == "b" || len(status.Holders) != 0) || held && status.Left() < 9*time.Hour {
				fail("the renewal of %s is lost: %+v", key, status)
			}
		case "released":
			if len(status.Holders) != 0 {
				fail("the release of %s is lost: %+v", key, status)
			}
		}
	}
	// And all goes on, with greater tokens.
	if g, err := s.Acquire(ctx, mine("next")); err != nil || g.Token <= l.last {
		fail("token %d after %d, %v", g.Token, l.last, err)
	}
	return lost
}

// everyHalf wants each half of each call to have been hit, or a test shows nothing.
func everyHalf(t *testing.T, ends map[string]int) {
	t.Helper()
	t.Logf("seen: %v", ends)
	for _, end := range []string{", held false", ", held true", "renewed, held true", "renewed, held false", "released, held false", "granted, held true"} {
		if ends[end] == 0 {
			t.Errorf("no crash left a key %q", end)
		}
	}
}

// dieAtStep works, and is killed after the step whose number it was given.
func dieAtStep(dir string) {
	var step int
	if _, err := fmt.Sscan(os.Getenv(childStep), &step); err != nil {
		panic(err)
	}
	disk, err := hostfile.OpenDisk(dir)
	if err != nil {
		panic(err)
	}
	work(filestore.On(disktest.DieAt(disk, step)), func(word, key string, token int64) { fmt.Println(word, key, token) })
	panic("still alive")
}

// killAtEachStep answers what processes lost that were killed at each step of the work.
func killAtEachStep(t *testing.T, fault string) (lost []string, ends map[string]int) {
	t.Helper()
	ends = make(map[string]int)
	root := disktest.InMemory(t)
	dir := func(step int) string { return filepath.Join(root, fmt.Sprint(step)) }
	disktest.KillAtEachStep(t,
		func(disk hostfile.Disk) { work(filestore.On(disk), func(string, string, int64) {}) },
		func(step int) []string {
			return []string{childIs + "=dies", childDir + "=" + dir(step), fmt.Sprint(childStep, "=", step), childFault + "=" + fault}
		},
		func(step int, said []string) {
			told := newLedger()
			for _, line := range said {
				var word, key string
				var token int64
				if _, err := fmt.Sscan(line, &word, &key, &token); err != nil {
					t.Error(err)
				}
				told.say(word, key, token)
			}
			for _, l := range told.judge(open(t, dir(step)), ends) {
				lost = append(lost, fmt.Sprintf("killed at step %d: %s", step, l))
			}
		})
	return lost, ends
}

func TestAKillAtAnyWriteLosesNothingAcknowledged(t *testing.T) {
	lost, ends := killAtEachStep(t, "")
	for _, l := range lost {
		t.Error(l)
	}
	everyHalf(t, ends)
}

// cutAtEachStep answers what was lost by any power cut during the work.
func cutAtEachStep() (lost []string, ends map[string]int) {
	ends = make(map[string]int)
	told := newLedger()
	disktest.CutAtEachStep(
		func(disk hostfile.Disk, answered func()) {
			work(filestore.On(disk), func(word, key string, token int64) {
				told.say(word, key, token)
				answered()
			})
		},
		func(step int, left hostfile.Disk) {
			for _, l := range told.judge(filestore.On(left), ends) {
				lost = append(lost, fmt.Sprintf("power cut at step %d: %s", step, l))
			}
		})
	return lost, ends
}

func TestAPowerCutAtAnyWriteLosesNothingAcknowledged(t *testing.T) {
	lost, ends := cutAtEachStep()
	for _, l := range lost {
		t.Error(l)
	}
	everyHalf(t, ends)
}
