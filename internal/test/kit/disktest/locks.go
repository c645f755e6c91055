package disktest

import (
	"fmt"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
)

// Locks are locks that a package keeps in files and that no crash may lose.
type Locks interface {
	Take(name string) (token string, err error) // for an hour
	Extend(name, token string) error            // to ten hours
	Release(name, token string) error

	// Find returns how long the lock with a token has left, 0 if it is not there, and
	// whether the name has other locks. The token "" stands for an unknown one.
	Find(name, token string) (left time.Duration, others bool, err error)

	// Newer reports whether a token may be given out after another one.
	Newer(token, than string) bool

	Close() error // closes the disk as well
}

// Open opens the locks on a disk.
type Open func(hostfile.Disk) (Locks, error)

// OutliveKills checks that all that was acknowledged outlives a kill at any write.
func OutliveKills(t *testing.T, open Open) {
	t.Helper()
	lost, ends := killAtEachStep(t, open, "")
	nothingLost(t, lost, ends)
}

// OutlivePowerCuts checks that all that was acknowledged outlives a power cut at any write.
func OutlivePowerCuts(t *testing.T, open Open) {
	t.Helper()
	lost, ends := cutAtEachStep(open)
	nothingLost(t, lost, ends)
}

// nothingLost checks that nothing was lost, and that the crashes hit every call before and
// after it took effect: otherwise the test shows nothing.
func nothingLost(t *testing.T, lost []string, ends map[string]int) {
	t.Helper()
	for _, l := range lost {
		t.Error(l)
	}
	t.Logf("seen: %v", ends)
	for _, end := range []string{", held false", ", held true", "taken, held true", "extended, held true", "extended, held false", "released, held false"} {
		if ends[end] == 0 {
			t.Errorf("no crash left a lock in the state %q", end)
		}
	}
}

const one, two = "/a", "/a/b"

// work takes locks, extends them and releases one. It reports each call that returned.
func work(open Open, disk hostfile.Disk, report func(call, name, token string)) {
	locks, err := open(disk)
	must(err)
	tokens := make(map[string]string)
	take := func(name string) {
		tokens[name], err = locks.Take(name)
		must(err)
		report("taken", name, tokens[name])
	}
	extend := func(name string) {
		must(locks.Extend(name, tokens[name]))
		report("extended", name, tokens[name])
	}
	take(one)
	extend(one)
	take(two)
	must(locks.Release(one, tokens[one]))
	report("released", one, tokens[one])
	extend(two)
	must(locks.Close())
}

// acknowledged is the last call for each lock that had returned before a crash, and the
// lock's token.
type acknowledged map[string]struct{ call, token string }

func (a acknowledged) add(call, name, token string) {
	a[name] = struct{ call, token string }{call, token}
}

// compare returns what a crash lost of what was acknowledged. It counts in ends how each lock
// was found.
func (a acknowledged) compare(open Open, left hostfile.Disk, ends map[string]int) (lost []string) {
	fail := func(format string, args ...any) { lost = append(lost, fmt.Sprintf(format, args...)) }
	locks, err := open(left)
	if err != nil {
		fail("%v", err)
		return lost
	}
	defer func() { _ = locks.Close() }() // nothing was written
	for _, name := range []string{one, two} {
		last := a[name]
		left, others, err := locks.Find(name, last.token)
		if err != nil {
			fail("find %s, which was last %s: %v", name, last.call, err)
			continue
		}
		held := left > 0
		ends[fmt.Sprintf("%s, held %v", last.call, held)]++
		ok := true
		switch last.call {
		case "taken": // and perhaps extended
			ok = held
		case "extended": // and perhaps released, if it is the first
			ok = left > 9*time.Hour || name == one && !held && !others
		case "released":
			ok = !held && !others
		}
		if !ok {
			fail("%s was %s, and has %v left; other locks: %v", name, last.call, left, others)
		}
	}
	next, err := locks.Take("/next")
	if err != nil {
		fail("no lock can be taken after it: %v", err)
		return lost
	}
	for name, last := range a {
		if !locks.Newer(next, last.token) {
			fail("token %s is given out after %s of %s", next, last.token, name)
		}
	}
	return lost
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
