package disktest

import (
	"fmt"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
)

// Locks are locks that a package keeps in files, and which a crash may not lose.
type Locks interface {
	Take(name string) (token string, err error) // for an hour
	Extend(name, token string) error            // to ten hours
	Release(name, token string) error

	// Find answers what the lock with that token has left, nothing if it is not there,
	// and whether there are others. Where the token is "", nobody knows which it has.
	Find(name, token string) (left time.Duration, others bool, err error)

	// Newer reports whether a token may be given out after another.
	Newer(token, than string) bool

	Close() error // and the disk
}

// Open opens the locks that are on a disk.
type Open func(hostfile.Disk) (Locks, error)

// OutliveKills wants all that was acknowledged to outlive a kill at any write.
func OutliveKills(t *testing.T, open Open) {
	t.Helper()
	lost, ends := killAtEachStep(t, open, "")
	nothingLost(t, lost, ends)
}

// OutlivePowerCuts wants all that was acknowledged to outlive a power cut at any write.
func OutlivePowerCuts(t *testing.T, open Open) {
	t.Helper()
	lost, ends := cutAtEachStep(open)
	nothingLost(t, lost, ends)
}

// nothingLost wants nothing to be lost, and each half of each call to have been hit, or a
// test shows nothing.
func nothingLost(t *testing.T, lost []string, ends map[string]int) {
	t.Helper()
	for _, l := range lost {
		t.Error(l)
	}
	t.Logf("seen: %v", ends)
	for _, end := range []string{", held false", ", held true", "taken, held true", "extended, held true", "extended, held false", "released, held false"} {
		if ends[end] == 0 {
			t.Errorf("no crash left a lock %q", end)
		}
	}
}

const one, two = "/a", "/a/b"

// work takes locks, extends them and releases one, and says so after each answer.
func work(open Open, disk hostfile.Disk, say func(word, name, token string)) {
	locks, err := open(disk)
	must(err)
	tokens := make(map[string]string)
	take := func(name string) {
		tokens[name], err = locks.Take(name)
		must(err)
		say("taken", name, tokens[name])
	}
	extend := func(name string) {
		must(locks.Extend(name, tokens[name]))
		say("extended", name, tokens[name])
	}
	take(one)
	extend(one)
	take(two)
	must(locks.Release(one, tokens[one]))
	say("released", one, tokens[one])
	extend(two)
	must(locks.Close())
}

// A memo is what was acknowledged before a crash: of each lock the last word and the
// token.
type memo map[string]struct{ word, token string }

func (m memo) say(word, name, token string) { m[name] = struct{ word, token string }{word, token} }

// judge compares what a crash left with what was acknowledged. It counts in ends how
// each lock was found.
func (m memo) judge(open Open, left hostfile.Disk, ends map[string]int) (lost []string) {
	fail := func(format string, args ...any) { lost = append(lost, fmt.Sprintf(format, args...)) }
	locks, err := open(left)
	if err != nil {
		fail("%v", err)
		return lost
	}
	defer func() { _ = locks.Close() }() // it was only looked at
	for _, name := range []string{one, two} {
		told := m[name]
		left, others, err := locks.Find(name, told.token)
		if err != nil {
			fail("%s, %s: %v", name, told.word, err)
			continue
		}
		held := left > 0
		ends[fmt.Sprintf("%s, held %v", told.word, held)]++
		ok := true
		switch told.word {
		case "taken": // and perhaps extended
			ok = held
		case "extended": // and perhaps released, if it is the first
			ok = left > 9*time.Hour || name == one && !held && !others
		case "released":
			ok = !held && !others
		}
		if !ok {
			fail("%s was %s, and has %v left, others %v", name, told.word, left, others)
		}
	}
	next, err := locks.Take("/next")
	if err != nil {
		fail("and it does not go on: %v", err)
		return lost
	}
	for name, told := range m {
		if !locks.Newer(next, told.token) {
			fail("token %s after %s of %s", next, told.token, name)
		}
	}
	return lost
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
