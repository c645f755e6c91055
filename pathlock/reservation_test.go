package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/pathlock"
)

func sharing(path string, timeout time.Duration) pathlock.Request {
	r := exclusive(path, timeout)
	r.Mode = pathlock.Shared
	return r
}

// readers hold /src/a without a gap until they leave: each shares it for a second, asks again at once,
// and another one does so half a second later.
func readers(t *testing.T, open func() pathlock.Storage) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 2 {
		tree := treeOn(t, open())
		all.Go(func() {
			time.Sleep(time.Duration(i) * 500 * time.Millisecond)
			for ctx.Err() == nil {
				l, err := tree.LockWait(ctx, sharing("/src/a", time.Minute))
				if err != nil {
					continue
				}
				time.Sleep(time.Second)
				_ = tree.Release(context.WithoutCancel(ctx), l.Token)
			}
		})
	}
	time.Sleep(2 * time.Second)
	return func() { cancel(); all.Wait() }
}

// inVirtualTime are the storages that can be used there. Each call of open is another process.
var inVirtualTime = map[string]func(t *testing.T) (open func() pathlock.Storage){
	"memory": func(*testing.T) func() pathlock.Storage {
		storage := pathlock.InMemory()
		return func() pathlock.Storage { return storage }
	},
	"MongoDB": func(t *testing.T) func() pathlock.Storage {
		server := memmongo.New()
		return func() pathlock.Storage {
			m, err := pathlock.OnMongo(server.Client(t).Database("any").Collection("paths"))
			require.NoError(t, err)
			return m
		}
	},
}

const patience = 10 * time.Minute

// waitAmongReaders returns how long an exclusive waiter above a path that is shared all the time waits.
func waitAmongReaders(t *testing.T, on string) (waited time.Duration, err error) {
	synctest.Test(t, func(t *testing.T) {
		open := inVirtualTime[on](t)
		defer readers(t, open)()
		writer := treeOn(t, open())
		patient, giveUp := context.WithTimeout(t.Context(), patience)
		defer giveUp()
		start := time.Now()
		_, err = writer.LockWait(patient, pathlock.Request{Path: "/src"})
		waited = time.Since(start)
	})
	return waited, err
}

func TestAnExclusiveWaiterIsServedThoughPathsBelowItAreSharedAllTheTime(t *testing.T) {
	for on := range inVirtualTime {
		t.Run(on, func(t *testing.T) {
			waited, err := waitAmongReaders(t, on)
			require.NoError(t, err)
			assert.LessOrEqual(t, waited, 1100*time.Millisecond, "the locks that it found last for a second")
		})
	}
}

// stopped is a storage that can be made unreachable, as by the death of its process.
func stopped(t *testing.T, kept pathlock.Documents, now *bool) pathlock.Storage {
	return onDocuments(t, hooked{kept, func(edit func() (time.Time, error)) (time.Time, error) {
		if *now {
			return time.Time{}, errors.New("no route to host")
		}
		return edit()
	}})
}

func TestAnExclusiveWaiterThatDiedKeepsSharedLocksOutForThirtySecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := pathlock.NewMemory()
		tree := treeOn(t, kept)
		held, err := tree.Lock(t.Context(), sharing("/a", time.Hour))
		require.NoError(t, err)
		dead := false
		dying, cancel := context.WithCancel(t.Context())
		waiter := treeOn(t, stopped(t, kept, &dead))
		start := time.Now()
		go func() { _, _ = waiter.LockWait(dying, exclusive("/a", time.Hour)) }()
		synctest.Wait()
		dead = true
		cancel()
		_, err = tree.Lock(t.Context(), sharing("/a", time.Hour))
		var conflict *pathlock.ConflictError
		require.ErrorAs(t, err, &conflict)
		assert.Equal(t, []pathlock.Request{{Path: "/a", Mode: pathlock.Exclusive, Depth: pathlock.Zero}}, conflict.Waiting)
		assert.Zero(t, conflict.Len(), "no lock is in the way")
		assert.ErrorContains(t, err, "1 exclusive request")

		_, err = tree.LockWait(t.Context(), sharing("/a", time.Hour))
		require.NoError(t, err)
		assert.InDelta(t, 30*time.Second, time.Since(start), float64(10*time.Millisecond))
		require.NoError(t, tree.Release(t.Context(), held.Token))
	})
}

// A waiter goes on waiting for longer than its reservation lasts, and the shared lock in its way too.
func TestSharedLocksWaitForAsLongAsAnExclusiveWaiterDoes(t *testing.T) {
	for name, end := range map[string]func(tree *pathlock.Tree, held pathlock.Lock, giveUp func()) error{
		"until it gives up": func(_ *pathlock.Tree, _ pathlock.Lock, giveUp func()) error { giveUp(); return nil },
		"until it was served and has released": func(tree *pathlock.Tree, held pathlock.Lock, _ func()) error {
			return tree.Release(context.Background(), held.Token)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				storage := pathlock.InMemory()
				tree, writer := treeOn(t, storage), treeOn(t, storage)
				held, err := tree.Lock(t.Context(), sharing("/a/b", time.Hour))
				require.NoError(t, err)
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				go func() {
					if l, err := writer.LockWait(ctx, pathlock.Request{Path: "/a"}); err == nil {
						_ = writer.Release(context.Background(), l.Token)
					}
				}()
				synctest.Wait()
				for range 100 {
					time.Sleep(7 * time.Second)
					_, err := tree.Lock(t.Context(), sharing("/a/b/c", time.Hour))
					require.ErrorIs(t, err, pathlock.ErrConflict)
				}
				l, err := tree.Lock(t.Context(), sharing("/ab", time.Hour))
				require.NoError(t, err, "a path that it does not want")
				require.NoError(t, tree.Release(t.Context(), l.Token))
				got := make(chan error, 1)
				go func() {
					_, err := tree.LockWait(t.Context(), sharing("/a/b/c", time.Hour))
					got <- err
				}()
				synctest.Wait()
				start := time.Now()
				require.NoError(t, end(tree, held, giveUp))
				require.NoError(t, <-got)
				assert.Zero(t, time.Since(start), "woken at once")
			})
		})
	}
}

// Only shared locks in the way make a waiter reserve: others that wait for an exclusive one are not kept out for long.
func TestAWaiterForAnExclusiveLockReservesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := pathlock.NewMemory()
		tree := treeOn(t, kept)
		_, err := tree.Lock(t.Context(), exclusive("/a", time.Hour))
		require.NoError(t, err)
		go func() { _, _ = tree.LockWait(t.Context(), pathlock.Request{Path: "/"}) }()
		synctest.Wait()
		_, err = tree.Lock(t.Context(), sharing("/b", time.Hour))
		assert.NoError(t, err)
	})
}

func TestATreeHasAtMostSixtyFourReservationsAndDropsThoseThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := pathlock.NewMemory()
		dead := false
		tree := treeOn(t, stopped(t, kept, &dead))
		reserved := func() (n int) {
			require.NoError(t, kept.View(t.Context(), "tree", func(doc *pathlock.Document, _ pathlock.Clock) { n = len(doc.Reserved) }))
			return n
		}
		_, err := tree.Lock(t.Context(), sharing("/a", time.Hour))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 70 {
			go func() { _, _ = tree.LockWait(ctx, pathlock.Request{Path: "/", Owner: fmt.Append(nil, i)}) }()
		}
		synctest.Wait()
		assert.Equal(t, 64, reserved())
		dead = true
		cancel()
		time.Sleep(time.Minute)
		assert.Equal(t, 64, reserved())
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		_, err = treeOn(t, kept).LockWait(short, pathlock.Request{Path: "/"})
		require.ErrorIs(t, err, pathlock.ErrConflict)
		synctest.Wait()
		assert.Zero(t, reserved(), "its own is gone with it")
	})
}
