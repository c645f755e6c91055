package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

func exclusive(path string, timeout time.Duration) pathlock.Request {
	r := held{path: path, mode: pathlock.Exclusive, depth: pathlock.Zero}.request()
	r.Timeouts = []time.Duration{timeout}
	return r
}

func TestALockIsOverAtItsTimeAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t)
		if _, err := tree.Lock(t.Context(), exclusive("/a", time.Hour)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Nanosecond)
		if _, err := tree.Lock(t.Context(), exclusive("/a", time.Hour)); !errors.Is(err, pathlock.ErrConflict) {
			t.Errorf("a nanosecond early: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := tree.Lock(t.Context(), exclusive("/a", time.Hour)); err != nil {
			t.Errorf("at its time: %v", err)
		}
	})
}

func TestARefreshCountsFromItsOwnMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t)
		l, err := tree.Lock(t.Context(), exclusive("/a", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		if l, err = tree.Refresh(t.Context(), l.Token); err != nil || l.Left != time.Hour || l.Timeout != time.Hour {
			t.Fatalf("%+v, %v", l, err)
		}
		time.Sleep(time.Hour)
		if _, err := tree.Refresh(t.Context(), l.Token); !errors.Is(err, pathlock.ErrUnknownToken) {
			t.Errorf("revived at the moment of its end: %v", err)
		}
	})
}

func TestAWaiterGetsThePathAtTheMomentOfReleaseOrExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		one, two := treeOn(t, storage), treeOn(t, storage)
		l, err := one.Lock(t.Context(), exclusive("/a", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		time.AfterFunc(10*time.Second, func() { _ = one.Release(context.Background(), "/a", l.Token) })
		if _, err := two.LockWait(t.Context(), exclusive("/a", time.Minute)); err != nil || time.Since(start) != 10*time.Second {
			t.Errorf("after the release: %v, %v", time.Since(start), err)
		}
		if _, err := one.LockWait(t.Context(), exclusive("/a", time.Minute)); err != nil || time.Since(start) > 70*time.Second+2*time.Millisecond {
			t.Errorf("after the expiry: %v, %v", time.Since(start), err)
		}
	})
}

func TestAWaitEndsWithItsContextOrItsTreeAndSaysWhoWasInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		holder, tree := treeOn(t, storage), treeOn(t, storage)
		if _, err := holder.Lock(t.Context(), exclusive("/a", time.Hour)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := tree.LockWait(ctx, exclusive("/a", time.Hour))
		c, ok := errors.AsType[*pathlock.ConflictError](err)
		if !ok || len(c.Same) != 1 || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		mine := errors.New("the user left")
		caused, end := context.WithCancelCause(t.Context())
		end(mine)
		if _, err := tree.LockWait(caused, exclusive("/a", time.Hour)); !errors.Is(err, mine) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		time.AfterFunc(time.Second, func() { _ = tree.Close() })
		if _, err := tree.LockWait(t.Context(), exclusive("/a", time.Hour)); !errors.Is(err, pathlock.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if all, err := holder.Locks(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("left behind: %v, %v", all, err)
		}
	})
}

func treeOn(t testing.TB, storage pathlock.Storage) *pathlock.Tree {
	t.Helper()
	tree, err := pathlock.New(storage, "tree")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	return tree
}

func TestExpiryIsToldAtItsMomentToAllWhoWatchOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		start := time.Now()
		got := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 3 {
			events, err := treeOn(t, storage).Watch(ctx)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for event, err := range events {
					got <- fmt.Sprint(i, " ", event.Kind, " ", event.Lock.Path, " ", event.At.Sub(start).Round(time.Second), " ", time.Since(start).Round(10*time.Millisecond), " ", err)
				}
			}()
		}
		writer := treeOn(t, storage)
		l, err := writer.Lock(t.Context(), exclusive("/a", 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if _, err := writer.Refresh(t.Context(), l.Token); err != nil { // and so it is later
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		cancel()
		synctest.Wait()
		close(got)
		seen := map[string]int{}
		for line := range got {
			seen[line]++
		}
		for i := range 3 {
			for _, want := range []string{"added /a 0s 0s <nil>", "expired /a 15s 15s <nil>"} {
				if n := seen[fmt.Sprint(i, " ", want)]; n != 1 {
					t.Errorf("watcher %d saw %q %d times", i, want, n)
				}
			}
		}
		if len(seen) != 6 {
			t.Errorf("seen: %v", seen)
		}
	})
}

// Nobody watches: nothing is logged, and nothing runs.
func TestWithoutWatchersNothingIsKeptForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := pathlock.InMemory()
		tree := treeOn(t, storage)
		for range 3 {
			if _, err := tree.Lock(t.Context(), exclusive("/a", time.Second)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		_ = storage.View(t.Context(), "tree", func(doc *pathlock.Document, _ pathlock.Clock) {
			if doc.Seq != 0 || len(doc.Log) != 0 {
				t.Errorf("%d events, %v", doc.Seq, doc.Log)
			}
			n := 0
			for range doc.Locks() {
				n++
			}
			if n != 1 { // the last, which ran out; nobody has written since
				t.Errorf("%d locks are stored", n)
			}
		})
	})
}

func TestAWatcherFarBehindIsToldWhatBecameOfWhatItKnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t)
		old, err := tree.Lock(t.Context(), exclusive("/old", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		events, err := tree.Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Release(t.Context(), "/old", old.Token); err != nil {
			t.Fatal(err)
		}
		for range pathlock.LogLength {
			l, err := tree.Lock(t.Context(), exclusive("/new", time.Hour))
			if err == nil {
				err = tree.Release(t.Context(), "/new", l.Token)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		last, err := tree.Lock(t.Context(), exclusive("/last", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{"released " + old.Token: true, "added " + last.Token: true}
		for event, err := range events {
			if err != nil || !want[string(event.Kind)+" "+event.Lock.Token] {
				t.Fatalf("%+v, %v", event, err)
			}
			delete(want, string(event.Kind)+" "+event.Lock.Token)
			if len(want) == 0 {
				break
			}
		}
	})
}

// A caller is let go when his context ends, and what is granted later goes back.
func TestACallerThatIsGoneLeavesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := pathlock.InMemory()
		slow := slowly{inner, 3 * time.Second}
		tree := treeOn(t, slow)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := tree.Lock(ctx, exclusive("/a", pathlock.MaxTimeout))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		time.Sleep(10 * time.Second)
		if all, err := treeOn(t, inner).Locks(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("left behind: %+v, %v", all, err)
		}
	})
}

// slowly writes, and answers later.
type slowly struct {
	storage pathlock.Storage
	by      time.Duration
}

func (s slowly) View(ctx context.Context, tree string, look func(*pathlock.Document, pathlock.Clock)) error {
	return s.storage.View(ctx, tree, look)
}

func (s slowly) Update(ctx context.Context, tree string, change func(*pathlock.Document, pathlock.Clock) (pathlock.Edit, error)) (time.Time, error) {
	at, err := s.storage.Update(ctx, tree, change)
	time.Sleep(s.by)
	return at, err
}
