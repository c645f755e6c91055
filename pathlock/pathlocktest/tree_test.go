package pathlocktest_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testmisuse"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/pathlock/pathlocktest"
	"github.com/mongolock/mongolock/store"
)

var (
	errAway = errors.New("the database is away")
	docs    = pathlock.Request{Path: "/docs", Depth: pathlock.Infinity, Timeouts: []time.Duration{time.Hour}}
	plan    = pathlock.Request{Path: "/docs/plan.txt", Timeouts: []time.Duration{time.Hour}}
)

func inVirtualTime(t *testing.T, test func(t *testing.T, tree *pathlocktest.Tree), opts ...pathlock.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, pathlocktest.New(t, opts...)) })
}

func TestAHeldPathConflictsUntilItsRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, tree *pathlocktest.Tree) {
		release := tree.Hold(pathlock.Request{Path: "/docs", Depth: pathlock.Infinity})
		_, err := tree.Lock(t.Context(), plan)
		var conflict *pathlock.ConflictError
		require.ErrorAs(t, err, &conflict)
		assert.Equal(t, "somebody else", string(conflict.Parents[0].Owner))

		time.AfterFunc(24*time.Hour, release) // it stays for as long
		began := time.Now()
		lock, err := tree.LockWait(t.Context(), plan)
		require.NoError(t, err)
		assert.InDelta(t, 24*time.Hour, time.Since(began), float64(time.Second))
		require.NoError(t, tree.Release(t.Context(), lock.Token))
	})
}

func TestAHeldPathWithATimeoutIsThatOfAProcessThatDied(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, tree *pathlocktest.Tree) {
		release := tree.Hold(docs)
		began := time.Now()
		_, err := tree.LockWait(t.Context(), plan)
		require.NoError(t, err)
		assert.InDelta(t, time.Hour, time.Since(began), float64(time.Second))
		release() // it ran out: no failure
	})
}

func TestASharedHoldLetsOthersShare(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, tree *pathlocktest.Tree) {
		shared := docs
		shared.Mode = pathlock.Shared
		tree.Hold(shared)
		_, err := tree.Lock(t.Context(), shared)
		require.NoError(t, err)
		_, err = tree.Lock(t.Context(), plan)
		require.ErrorIs(t, err, mongolock.ErrHeld)

		tree.Lose("/docs") // that of the code; the other one stays
		all, err := tree.Locks(t.Context())
		require.NoError(t, err)
		assert.Len(t, all, 1)
	})
}

func TestALostLockIsUnknownAndItsPathFree(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, tree *pathlocktest.Tree) {
		lock, err := tree.Lock(t.Context(), docs)
		require.NoError(t, err)
		below, err := tree.Lock(t.Context(), pathlock.Request{Path: "/pictures"})
		require.NoError(t, err)
		tree.Lose("docs/")
		_, err = tree.Refresh(t.Context(), lock.Token)
		require.ErrorIs(t, err, pathlock.ErrUnknownToken)
		_, err = tree.Refresh(t.Context(), below.Token)
		require.NoError(t, err, "no other lock is touched")
		tree.Hold(docs)()
	}, pathlock.WithLimits(pathlock.Limits{Default: time.Hour}))
}

func TestAStorageThatIsAwayFailsEveryCallAndLeavesNoUnknownLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, tree *pathlocktest.Tree) {
		lock, err := tree.Lock(t.Context(), docs)
		require.NoError(t, err)
		tree.Fail(errAway)
		_, err = tree.Refresh(t.Context(), lock.Token)
		require.ErrorIs(t, err, errAway)
		require.ErrorIs(t, err, pathlock.ErrOutcomeUnknown)
		_, err = tree.Lock(t.Context(), pathlock.Request{Path: "/pictures"})
		require.ErrorIs(t, err, errAway)
		_, err = tree.Locks(t.Context())
		require.ErrorIs(t, err, errAway)

		tree.Fail(errors.Join(errAway, store.ErrNotApplied))
		_, err = tree.Refresh(t.Context(), lock.Token)
		require.ErrorIs(t, err, errAway)
		assert.NotErrorIs(t, err, pathlock.ErrOutcomeUnknown)

		tree.Fail(nil)
		time.Sleep(time.Minute) // virtual: longer than any retry
		all, err := tree.Locks(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)

		tree.Fail(errAway)
		time.Sleep(2 * time.Hour) // the lock runs out meanwhile
		tree.Fail(nil)
		_, err = tree.Refresh(t.Context(), lock.Token)
		require.ErrorIs(t, err, pathlock.ErrUnknownToken)
	})
}

func TestTheTreesOptionsHoldForTheOtherProcessToo(t *testing.T) {
	lower := pathlock.WithAlias(func(path string) (string, error) { return strings.ToLower(path), nil })
	inVirtualTime(t, func(t *testing.T, tree *pathlocktest.Tree) {
		tree.Hold(pathlock.Request{Path: "/DOCS", Depth: pathlock.Infinity})
		_, err := tree.Lock(t.Context(), plan)
		require.ErrorIs(t, err, pathlock.ErrConflict)
	}, lower)
}

func TestControlAMisuseFailsTheTestAndSaysWhy(t *testing.T) {
	for want, misuse := range map[string]func(f *testmisuse.T){
		"WithAlias(nil)": func(f *testmisuse.T) { pathlocktest.New(f, pathlock.WithAlias(nil)) },
		`Hold("/docs"): pathlock: exclusive lock of "/docs"`: func(f *testmisuse.T) {
			tree := pathlocktest.New(f)
			tree.Hold(docs)
			tree.Hold(docs)
		},
		`Hold("/docs"): release: pathlock: no lock has this token`: func(f *testmisuse.T) {
			release := pathlocktest.New(f).Hold(pathlock.Request{Path: "/docs"})
			release()
			release()
		},
		`Hold("a/.."): pathlock: not a path`:                   func(f *testmisuse.T) { pathlocktest.New(f).Hold(pathlock.Request{Path: "a/.."}) },
		`Lose("/docs"): the code under test has no lock on it`: func(f *testmisuse.T) { tree := pathlocktest.New(f); tree.Hold(docs); tree.Lose("/docs") },
		`Lose("/docs/x"): the code under test has no lock on it`: func(f *testmisuse.T) {
			tree := pathlocktest.New(f)
			_, _ = tree.Lock(t.Context(), docs)
			tree.Lose("/docs/x")
		},
		`Lose("."): pathlock: not a path`: func(f *testmisuse.T) { pathlocktest.New(f).Lose(".") },
	} {
		assert.Contains(t, testmisuse.Failures(t, misuse), want)
	}
	assert.Empty(t, testmisuse.Failures(t, func(f *testmisuse.T) {
		tree := pathlocktest.New(f)
		_, err := tree.Lock(t.Context(), docs)
		require.NoError(t, err)
		tree.Fail(errAway)
		tree.Lose("/docs")
		tree.Hold(docs)()
	}), "a test that does nothing wrong")
}
