package webdavlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/webdav"

	"github.com/mongolock/mongolock"
	webdavlock "github.com/mongolock/mongolock/adapters/webdav"
	"github.com/mongolock/mongolock/pathlock"
)

func newLocks(t testing.TB, storage pathlock.Storage, opts ...webdavlock.Option) *webdavlock.LockSystem {
	t.Helper()
	s, err := webdavlock.New(storage, "files", opts...)
	require.NoError(t, err)
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
	require.NoError(t, err)
	_, err = two.Create(time.Now(), details("/a/b", true))
	assert.Equal(t, webdav.ErrLocked, err, "another server")
	release, err := two.Confirm(time.Now(), "/a/b", "", webdav.Condition{Token: token})
	require.NoError(t, err)
	assert.Equal(t, webdav.ErrLocked, one.Unlock(time.Now(), token), "unlocked during a write of another server")
	_, err = one.Refresh(time.Now(), token, time.Hour)
	assert.Equal(t, webdav.ErrLocked, err, "refreshed during a write of another server")
	_, err = one.Confirm(time.Now(), "/a/c", "", webdav.Condition{Token: token})
	assert.Equal(t, webdav.ErrConfirmationFailed, err, "in use by two requests")
	release()
	l, err := one.Refresh(time.Now(), token, -1)
	require.NoError(t, err)
	assert.Equal(t, webdav.LockDetails{Root: "/a", Duration: pathlock.Infinite, OwnerXML: "<D:href>me</D:href>"}, l)
	assert.NoError(t, two.Unlock(time.Now(), token))
	assert.Equal(t, webdav.ErrNoSuchLock, two.Unlock(time.Now(), token), "unlocked twice")
}

func TestTheHandlersOwnLocksLastAsLongAsTheirProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		one, two := newLocks(t, storage), newLocks(t, storage)
		token, err := one.Create(time.Now(), webdav.LockDetails{Root: "/a", Duration: -1, ZeroDepth: true})
		require.NoError(t, err)
		time.Sleep(time.Hour) // virtual, as all here: a very long request
		_, err = two.Create(time.Now(), details("/a", true))
		assert.Equal(t, webdav.ErrLocked, err, "gone during a long request")
		require.NoError(t, one.Close())
		_, err = two.Create(time.Now(), details("/a", true))
		assert.NoError(t, err, "left behind by a process that has ended")
		assert.Error(t, one.Unlock(time.Now(), token), "unlocked after its end")
	})
}

func TestALockInUseDoesNotRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLocks(t, pathlock.InMemory())
		d := details("/a", true)
		d.Duration = 2 * time.Second
		token, err := s.Create(time.Now(), d)
		require.NoError(t, err)
		release, err := s.Confirm(time.Now(), "/a", "", webdav.Condition{Token: token})
		require.NoError(t, err)
		time.Sleep(time.Minute) // long after its time, but a write is under way
		_, err = s.Create(time.Now(), details("/a", true))
		assert.Equal(t, webdav.ErrLocked, err, "ran out during a write")
		release()
		time.Sleep(3 * time.Second) // its 2 s are over
		_, err = s.Create(time.Now(), details("/a", true))
		assert.NoError(t, err, "did not run out after it")
	})
}

// x/net's own lock system and ours get the same random calls, and have to answer the same.
func TestEveryAnswerIsThatOfTheLockSystemOfXNet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]int{}
		for seed := range uint64(300) {
			compare(t, rand.New(rand.NewPCG(seed, 1)), seen)
		}
		for _, answer := range []string{"create <nil>", "create webdav: locked", "confirm <nil>", "confirm webdav: confirmation failed", "unlock webdav: locked", "unlock webdav: no such lock", "unlock <nil>", "refresh <nil>", "refresh webdav: locked", "refresh webdav: no such lock"} {
			assert.GreaterOrEqual(t, seen[answer], 10, "%q was seen too rarely for the comparison to say much", answer)
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
				time.Sleep(time.Duration(random.IntN(3)) * 3 * time.Second) // virtual: sometimes a lock runs out
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

func TestWrongArgumentsAreRefusedByName(t *testing.T) {
	memory := pathlock.InMemory()
	for want, build := range map[string]func() (*webdavlock.LockSystem, error){
		"storage is nil":   func() (*webdavlock.LockSystem, error) { return webdavlock.New(nil, "x") },
		"name of the tree": func() (*webdavlock.LockSystem, error) { return webdavlock.New(memory, "") },
		"a nil Option":     func() (*webdavlock.LockSystem, error) { return webdavlock.New(memory, "x", nil) },
		"WithETag(nil)":    func() (*webdavlock.LockSystem, error) { return webdavlock.New(memory, "x", webdavlock.WithETag(nil)) },
		"WithLogger(nil)":  func() (*webdavlock.LockSystem, error) { return webdavlock.New(memory, "x", webdavlock.WithLogger(nil)) },
		"WithObserver(nil)": func() (*webdavlock.LockSystem, error) {
			return webdavlock.New(memory, "x", webdavlock.WithObserver(nil))
		},
		"WithAlias(nil)": func() (*webdavlock.LockSystem, error) { return webdavlock.New(memory, "x", webdavlock.WithAlias(nil)) },
	} {
		s, err := build()
		assert.Nil(t, s)
		assert.ErrorContains(t, err, want)
	}
	s := newLocks(t, memory)
	d := details("/a", true)
	d.OwnerXML = strings.Repeat("x", 16<<10+1)
	_, err := s.Create(time.Now(), d)
	assert.ErrorContains(t, err, "Owner")
}

// seenKeys are the keys that an observer sees.
type seenKeys struct {
	mu   sync.Mutex // protects keys
	keys []string
}

func (s *seenKeys) Begin(ctx context.Context, op mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, op.Key)
	return ctx, func(mongolock.Outcome) {}
}

func TestOptionsReachTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		var log strings.Builder
		seen := &seenKeys{}
		s := newLocks(t, storage, webdavlock.WithOwner("host-7"), webdavlock.WithObserver(seen), webdavlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		_, err := s.Create(time.Now(), webdav.LockDetails{Root: "/a", Duration: -1, ZeroDepth: true}) // the handler's own
		require.NoError(t, err)
		token, err := s.Create(time.Now(), details("/b", true))
		require.NoError(t, err)
		release, err := s.Confirm(time.Now(), "/b", "", webdav.Condition{Token: token})
		require.NoError(t, err)
		release()
		tree, err := pathlock.New(storage, "files")
		require.NoError(t, err)
		t.Cleanup(func() { _ = tree.Close() })
		all, err := tree.Locks(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 2)
		assert.Equal(t, "host-7", string(all[0].Owner))
		assert.Equal(t, "<D:href>me</D:href>", string(all[1].Owner), "a client names its own")
		require.NoError(t, tree.Release(t.Context(), all[0].Token))
		time.Sleep(time.Minute) // virtual: it is refreshed, and gone
		assert.Contains(t, log.String(), "a hold is lost")
		synctest.Wait()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		assert.Contains(t, seen.keys, "files:/a")
		for _, key := range seen.keys {
			assert.NotContains(t, key, "urn:uuid", "a token is shown")
		}
	})
}
