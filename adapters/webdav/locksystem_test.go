package webdav_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/webdav"

	lockdav "github.com/mongolock/mongolock/adapters/webdav"
	"github.com/mongolock/mongolock/pathlock"
)

func newLocks(t testing.TB, storage pathlock.Storage, opts ...lockdav.Option) *lockdav.LockSystem {
	t.Helper()
	s, err := lockdav.New(storage, "files", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func details(root string, zero bool) webdav.LockDetails {
	return webdav.LockDetails{Root: root, Duration: time.Hour, OwnerXML: "<D:href>me</D:href>", ZeroDepth: zero}
}

func TestALockCountsForEveryServerOnTheStorage(t *testing.T) {
	storage := pathlock.InMemory()
	one, two := newLocks(t, storage), newLocks(t, storage)
	token, err := one.Create(time.Now(), details("/a", false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Create(time.Now(), details("/a/b", true)); err != webdav.ErrLocked {
		t.Errorf("another server: %v", err)
	}
	release, err := two.Confirm(time.Now(), "/a/b", "", webdav.Condition{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Unlock(time.Now(), token); err != webdav.ErrLocked {
		t.Errorf("unlocked under another server's write: %v", err)
	}
	if _, err := one.Refresh(time.Now(), token, time.Hour); err != webdav.ErrLocked {
		t.Errorf("refreshed under another server's write: %v", err)
	}
	if _, err := one.Confirm(time.Now(), "/a/c", "", webdav.Condition{Token: token}); err != webdav.ErrConfirmationFailed {
		t.Errorf("in use by two requests: %v", err)
	}
	release()
	l, err := one.Refresh(time.Now(), token, -1)
	if err != nil || l.Root != "/a" || l.OwnerXML != "<D:href>me</D:href>" || l.ZeroDepth || l.Duration >= 0 {
		t.Errorf("%+v, %v", l, err)
	}
	if err := two.Unlock(time.Now(), token); err != nil {
		t.Error(err)
	}
	if err := two.Unlock(time.Now(), token); err != webdav.ErrNoSuchLock {
		t.Errorf("unlocked twice: %v", err)
	}
}

func TestTheHandlersOwnLocksLastWhileTheirProcessLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		one, two := newLocks(t, storage), newLocks(t, storage)
		token, err := one.Create(time.Now(), webdav.LockDetails{Root: "/a", Duration: -1, ZeroDepth: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // of the bubble, as all here: a very long request
		if _, err := two.Create(time.Now(), details("/a", true)); err != webdav.ErrLocked {
			t.Errorf("gone under a long request: %v", err)
		}
		if err := one.Close(); err != nil { // as good as killed: nothing is released
			t.Fatal(err)
		}
		time.Sleep(31 * time.Second) // its lease of 30 s is over
		if _, err := two.Create(time.Now(), details("/a", true)); err != nil {
			t.Errorf("left behind by a process that is gone: %v", err)
		}
		if err := one.Unlock(time.Now(), token); err == nil {
			t.Error("unlocked though it is over")
		}
	})
}

func TestALockInUseDoesNotRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLocks(t, pathlock.InMemory())
		d := details("/a", true)
		d.Duration = 2 * time.Second
		token, err := s.Create(time.Now(), d)
		if err != nil {
			t.Fatal(err)
		}
		release, err := s.Confirm(time.Now(), "/a", "", webdav.Condition{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // long after its end, but a write is under way
		if _, err := s.Create(time.Now(), details("/a", true)); err != webdav.ErrLocked {
			t.Errorf("ran out under a write: %v", err)
		}
		release()
		time.Sleep(3 * time.Second) // its end, and some
		if _, err := s.Create(time.Now(), details("/a", true)); err != nil {
			t.Errorf("did not run out after it: %v", err)
		}
	})
}

// x/net's own lock system and ours, asked the same at random, answer the same.
func TestItAnswersAsTheLockSystemOfXNetDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]int{}
		for seed := range uint64(300) {
			compare(t, rand.New(rand.NewPCG(seed, 1)), seen)
		}
		for _, answer := range []string{"create <nil>", "create webdav: locked", "confirm <nil>", "confirm webdav: confirmation failed", "unlock webdav: locked", "unlock webdav: no such lock", "unlock <nil>", "refresh <nil>", "refresh webdav: locked", "refresh webdav: no such lock"} {
			if seen[answer] < 10 {
				t.Errorf("%q was seen %d times: the comparison says little", answer, seen[answer])
			}
		}
	})
}

func compare(t *testing.T, random *rand.Rand, seen map[string]int) {
	t.Helper()
	theirs, ours := webdav.NewMemLS(), newLocks(t, pathlock.InMemory())
	type pair struct{ theirs, ours string }
	tokens := []pair{{"none", "none"}}
	type use struct{ theirs, ours func() }
	var uses []use
	names := []string{"/", "/a", "/a/b", "/a/b/c", "/ab", "/b", "a/", ""}
	pick := func() pair { return tokens[random.IntN(len(tokens))] }
	for step := range 60 {
		name, other := names[random.IntN(len(names)-1)], names[random.IntN(len(names))]
		now := time.Now()
		var op string
		var one, two error
		switch random.IntN(6) {
		case 0, 1:
			op = "create"
			d := details(name, random.IntN(2) == 0)
			d.Duration = time.Duration(1+random.IntN(2)) * 10 * time.Second
			if random.IntN(4) == 0 {
				d.Duration = -1
			}
			var p pair
			p.theirs, one = theirs.Create(now, d)
			if p.ours, two = ours.Create(now, d); one == nil && two == nil {
				tokens = append(tokens, p)
			}
		case 2:
			op = "confirm"
			p, q := pick(), pick()
			var u use
			u.theirs, one = theirs.Confirm(now, name, other, webdav.Condition{Token: p.theirs}, webdav.Condition{Token: q.theirs})
			u.ours, two = ours.Confirm(now, name, other, webdav.Condition{Token: p.ours}, webdav.Condition{Token: q.ours})
			if one == nil && two == nil {
				uses = append(uses, u)
			}
		case 3:
			op = "refresh"
			p, d := pick(), time.Duration(1+random.IntN(2))*10*time.Second
			_, one = theirs.Refresh(now, p.theirs, d)
			_, two = ours.Refresh(now, p.ours, d)
		case 4:
			op = "unlock"
			p := pick()
			one, two = theirs.Unlock(now, p.theirs), ours.Unlock(now, p.ours)
		case 5:
			op = "release"
			if len(uses) > 0 {
				u := uses[0]
				uses = uses[1:]
				u.theirs()
				u.ours()
			} else {
				time.Sleep(time.Duration(random.IntN(3)) * 3 * time.Second) // of the bubble: now and then a lock runs out
			}
		}
		seen[fmt.Sprintf("%s %v", op, one)]++
		if !errors.Is(two, one) || one == nil && two != nil {
			t.Fatalf("step %d: %s of %q, %q: theirs %v, ours %v", step, op, name, other, one, two)
		}
	}
	for _, u := range uses {
		u.ours()
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	for want, build := range map[string]func() (*lockdav.LockSystem, error){
		"storage is nil":   func() (*lockdav.LockSystem, error) { return lockdav.New(nil, "x") },
		"name of the tree": func() (*lockdav.LockSystem, error) { return lockdav.New(pathlock.InMemory(), "") },
		"WithETag": func() (*lockdav.LockSystem, error) {
			return lockdav.New(pathlock.InMemory(), "x", lockdav.WithETag(nil))
		},
		"WithAlias": func() (*lockdav.LockSystem, error) {
			return lockdav.New(pathlock.InMemory(), "x", lockdav.WithAlias(nil))
		},
	} {
		if s, err := build(); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	s := newLocks(t, pathlock.InMemory())
	d := details("/a", true)
	d.OwnerXML = strings.Repeat("x", pathlock.MaxOwner+1)
	if _, err := s.Create(time.Now(), d); err == nil || !strings.Contains(err.Error(), "Owner") {
		t.Error(err)
	}
}
