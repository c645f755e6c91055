package pathlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/pathlock"
)

func exclusive(path string, timeout time.Duration) pathlock.Request {
	return pathlock.Request{Path: path, Depth: pathlock.Zero, Timeouts: []time.Duration{timeout}}
}

func treeOn(t testing.TB, storage pathlock.Storage, opts ...pathlock.Option) *pathlock.Tree {
	t.Helper()
	tree, err := pathlock.New(storage, "tree", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tree.Close() })
	return tree
}

func locksOn(t testing.TB, storage pathlock.Storage) []pathlock.Lock {
	t.Helper()
	all, err := treeOn(t, storage).Locks(t.Context())
	require.NoError(t, err)
	return all
}

func TestALockEndsAtItsTimeAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t)
		_, err := tree.Lock(t.Context(), exclusive("/a", time.Hour))
		require.NoError(t, err)
		time.Sleep(time.Hour - time.Nanosecond)
		_, err = tree.Lock(t.Context(), exclusive("/a", time.Hour))
		assert.ErrorIs(t, err, pathlock.ErrConflict, "a nanosecond early")
		time.Sleep(time.Nanosecond)
		_, err = tree.Lock(t.Context(), exclusive("/a", time.Hour))
		assert.NoError(t, err, "at its time")
	})
}

func TestARefreshCountsFromItsOwnMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t)
		l, err := tree.Lock(t.Context(), exclusive("/a", time.Hour))
		require.NoError(t, err)
		time.Sleep(50 * time.Minute)
		l, err = tree.Refresh(t.Context(), l.Token)
		require.NoError(t, err)
		assert.Equal(t, time.Hour, l.Left)
		assert.Equal(t, time.Hour, l.Timeout)
		time.Sleep(time.Hour)
		_, err = tree.Refresh(t.Context(), l.Token)
		assert.ErrorIs(t, err, pathlock.ErrUnknownToken, "revived at the moment of its end")
	})
}

func TestAWaiterGetsThePathAtTheMomentOfReleaseOrExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.NewMemory()
		one, two := treeOn(t, storage), treeOn(t, storage)
		l, err := one.Lock(t.Context(), exclusive("/a", time.Hour))
		require.NoError(t, err)
		start := time.Now()
		time.AfterFunc(10*time.Second, func() { _ = one.Release(context.Background(), l.Token) })
		_, err = two.LockWait(t.Context(), exclusive("/a", time.Minute))
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, time.Since(start), "the release")
		_, err = one.LockWait(t.Context(), exclusive("/a", time.Minute))
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(start), 70*time.Second+2*time.Millisecond, "the expiry")
	})
}

func TestAWaitEndsWithItsContextAndNamesTheLocksInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.NewMemory()
		_, err := treeOn(t, storage).Lock(t.Context(), exclusive("/a", time.Hour))
		require.NoError(t, err)
		tree := treeOn(t, storage)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err = tree.LockWait(ctx, exclusive("/a", time.Hour))
		assert.Equal(t, time.Second, time.Since(start))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var conflict *pathlock.ConflictError
		require.ErrorAs(t, err, &conflict)
		assert.Len(t, conflict.Same, 1)

		mine := errors.New("the user left")
		caused, end := context.WithCancelCause(t.Context())
		end(mine)
		_, err = tree.LockWait(caused, exclusive("/a", time.Hour))
		assert.ErrorIs(t, err, mine)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Len(t, locksOn(t, storage), 1, "left behind")
	})
}

func TestAWaitEndsWhenItsTreeIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.NewMemory()
		_, err := treeOn(t, storage).Lock(t.Context(), exclusive("/a", time.Hour))
		require.NoError(t, err)
		tree := treeOn(t, storage)
		time.AfterFunc(time.Second, func() { _ = tree.Close() })
		_, err = tree.LockWait(t.Context(), exclusive("/a", time.Hour))
		assert.ErrorIs(t, err, pathlock.ErrClosed)
	})
}

// A hooked storage has a function decide about each edit: it makes it, or does not, and says what is answered.
type hooked struct {
	pathlock.Documents
	on func(edit func() (time.Time, error)) (time.Time, error)
}

func (h hooked) Update(ctx context.Context, tree string, change func(*pathlock.Document, pathlock.Clock)) (time.Time, error) {
	return h.on(func() (time.Time, error) { return h.Documents.Update(ctx, tree, change) })
}

func onDocuments(t testing.TB, d pathlock.Documents) pathlock.Storage {
	t.Helper()
	s, err := pathlock.OnDocuments(d)
	require.NoError(t, err)
	return s
}

func TestACallEndsWithItsContextAndALaterGrantIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.NewMemory()
		slow := hooked{storage, func(edit func() (time.Time, error)) (time.Time, error) {
			defer time.Sleep(3 * time.Second) // virtual: it writes at once, and answers later
			return edit()
		}}
		tree := treeOn(t, onDocuments(t, slow))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := tree.Lock(ctx, exclusive("/a", pathlock.MaxTimeout))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(10 * time.Second) // virtual: the answer, and the release
		assert.Empty(t, locksOn(t, storage), "left behind")
	})
}

// The first write is applied and its answer is lost while the tree is being closed.
func TestCloseWaitsForTheCleanUpOfAnUnknownLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.NewMemory()
		var lost atomic.Bool
		losesOne := hooked{storage, func(edit func() (time.Time, error)) (time.Time, error) {
			at, err := edit()
			if lost.Swap(true) {
				return at, err
			}
			time.Sleep(3 * time.Second) // virtual
			return at, errors.Join(err, errors.New("connection reset"))
		}}
		tree := treeOn(t, onDocuments(t, losesOne), pathlock.WithLimits(pathlock.Limits{Infinite: true}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := tree.Lock(ctx, exclusive("/a", pathlock.Infinite))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, tree.Close())
		assert.Empty(t, locksOn(t, storage), "a lock without end is left behind")
	})
}

// A caller that gave a refresh up and asked again relies on the second answer.
func TestARefreshWhoseCallerHasLeftDoesNotUndoALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := make(chan chan struct{}, 1)
		storage := onDocuments(t, hooked{pathlock.NewMemory(), func(edit func() (time.Time, error)) (time.Time, error) {
			select {
			case until := <-stall:
				<-until
			default:
			}
			return edit()
		}})
		tree := treeOn(t, storage)
		l, err := tree.Lock(t.Context(), exclusive("/a", time.Hour))
		require.NoError(t, err)
		goOn := make(chan struct{})
		stall <- goOn
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = tree.Refresh(ctx, l.Token, time.Minute)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		fresh, err := tree.Refresh(t.Context(), l.Token, 2*time.Hour)
		require.NoError(t, err)
		close(goOn)
		require.NoError(t, tree.Close()) // which waits for the first
		all := locksOn(t, storage)
		require.Len(t, all, 1)
		assert.Equal(t, fresh.ExpireAt, all[0].ExpireAt)
	})
}
