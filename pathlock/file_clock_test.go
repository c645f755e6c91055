package pathlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/pathlock"
)

// A machine has a clock that counts from its start, and one that can be set.
type machine struct {
	boots int
	began time.Time     // when its clock began to count
	ahead time.Duration // of its wall clock
	dir   string
}

func newMachine(t *testing.T) *machine {
	return &machine{began: time.Now().Add(-time.Hour), dir: disktest.InMemory(t)}
}

func (m *machine) wall() time.Time { return time.Now().Add(m.ahead) }

// tree is that of one process, with the clock that InDir takes.
func (m *machine) tree(t *testing.T) *pathlock.Tree {
	began := m.began
	return m.treeBy(t, hostclock.Of(fmt.Sprint("boot ", m.boots), func() time.Duration { return time.Since(began) }))
}

func (m *machine) treeBy(t *testing.T, clock hostclock.Clock) *pathlock.Tree {
	t.Helper()
	dir, err := pathlock.InDir(m.dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return treeOn(t, dir.Clocked(clock, m.wall))
}

// leftOfLock is how long the one lock of the tree lasts: 0 if there is none.
func leftOfLock(t *testing.T, tree *pathlock.Tree) time.Duration {
	t.Helper()
	all, err := tree.Locks(t.Context())
	require.NoError(t, err)
	if len(all) == 0 {
		return 0
	}
	require.Len(t, all, 1)
	return all[0].Left
}

func TestAStepOfTheWallClockNeitherEndsNorProlongsAPathLock(t *testing.T) {
	for _, by := range []time.Duration{11 * time.Minute, 2 * time.Hour, -11 * time.Minute, -24 * time.Hour, 20 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t)
			tree, rival := m.tree(t), m.tree(t)
			lock, err := tree.Lock(t.Context(), exclusive("/", 10*time.Minute))
			require.NoError(t, err)
			m.ahead += by
			_, err = rival.Lock(t.Context(), exclusive("/", time.Minute))
			require.ErrorIs(t, err, pathlock.ErrConflict, "%v", by)
			assert.Equal(t, 10*time.Minute, leftOfLock(t, rival), "%v", by)
			time.Sleep(5 * time.Minute)
			fresh, err := tree.Refresh(t.Context(), lock.Token)
			require.NoError(t, err, "%v", by)
			assert.Equal(t, 10*time.Minute, fresh.Left)
			m.ahead -= 2 * by
			assert.Equal(t, 10*time.Minute, leftOfLock(t, rival), "%v", by)
			time.Sleep(10*time.Minute + time.Millisecond)
			_, err = rival.Lock(t.Context(), exclusive("/", time.Minute))
			require.NoError(t, err, "%v", by)
		})
	}
}

// The control: by the wall clock a second holder is let in.
func TestControlAStepOfTheWallClockEndsAPathLockThatItJudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		wall := hostclock.Of("wall clock", func() time.Duration { return time.Duration(m.wall().UnixNano()) })
		tree, rival := m.treeBy(t, wall), m.treeBy(t, wall)
		_, err := tree.Lock(t.Context(), exclusive("/", 10*time.Minute))
		require.NoError(t, err)
		m.ahead += 11 * time.Minute
		_, err = rival.Lock(t.Context(), exclusive("/", time.Minute))
		assert.NoError(t, err, "refused all the same: the host's clock is not what protects")
	})
}

func TestAfterARestartOfTheHostAPathLockKeepsTheTimeItHadLeft(t *testing.T) {
	for what, c := range map[string]struct{ down, ahead, left time.Duration }{
		"at once":                       {0, 0, 40 * time.Minute},
		"down for less than a minute":   {30 * time.Second, 0, 40 * time.Minute},
		"down for ten minutes":          {10 * time.Minute, 0, 31 * time.Minute},
		"down for longer than its time": {2 * time.Hour, 0, 0},
		"its wall clock knows no date":  {10 * time.Minute, -20 * 365 * 24 * time.Hour, 40 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t)
			tree := m.tree(t)
			lock, err := tree.Lock(t.Context(), exclusive("/", 40*time.Minute))
			require.NoError(t, err)
			time.Sleep(c.down)
			m.ahead += c.ahead
			m.boots, m.began = m.boots+1, time.Now()
			tree = m.tree(t)
			assert.Equal(t, c.left, leftOfLock(t, tree), what)
			if c.left == 0 {
				return
			}
			_, err = tree.Lock(t.Context(), exclusive("/", time.Minute))
			assert.ErrorIs(t, err, pathlock.ErrConflict, what)
			fresh, err := tree.Refresh(t.Context(), lock.Token)
			require.NoError(t, err, what)
			assert.Equal(t, 40*time.Minute, fresh.Left, what)
		})
	}
}

// However often the host is started, a lock that nobody refreshes lasts a minute too long at most.
func TestManyRestartsProlongAPathLockByAMinuteAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		_, err := m.tree(t).Lock(t.Context(), exclusive("/", 40*time.Minute))
		require.NoError(t, err)
		for range 20 {
			time.Sleep(2 * time.Minute)
			m.boots, m.began = m.boots+1, time.Now()
			_, err = m.tree(t).Lock(t.Context(), exclusive("/", time.Minute))
			require.ErrorIs(t, err, pathlock.ErrConflict)
		}
		time.Sleep(2 * time.Minute)
		_, err = m.tree(t).Lock(t.Context(), exclusive("/", time.Minute))
		assert.NoError(t, err)
	})
}
