// Package pathlocktest tests code that locks paths.
//
// [New] makes a real tree in memory, and causes the three things that go wrong with path locks:
// [Tree.Hold] locks a path as another process would, [Tree.Lose] takes a lock away from your
// code, and [Tree.Fail] makes the storage unreachable. Everything else (conflicts, waiting,
// timeouts) package pathlock does itself.
//
//	func TestAReportThatIsBeingWritten(t *testing.T) {
//		tree := pathlocktest.New(t)
//		release := tree.Hold(pathlock.Request{Path: "/reports/2026", Depth: pathlock.Infinity})
//		... // your code, given tree.Tree, finds the path locked
//		release()
//		... // and now it finds the path free
//	}
package pathlocktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/mongolock/mongolock/internal/inside/above"
	"github.com/mongolock/mongolock/pathlock"
)

// A Tree is a tree on a storage of its own, in memory, for tests of code that locks paths. Give
// your code the pathlock.Tree in it. New makes one.
type Tree struct {
	*pathlock.Tree

	t     testing.TB
	rival *pathlock.Tree // locks paths as another process; its storage never fails

	mu   sync.Mutex // protects what follows
	held []string   // the tokens of the rival's locks
	err  error      // the answer of every call of the storage; nil if calls succeed
}

// New makes an empty Tree for one test, and closes it when the test ends. Locks that are left
// then do not fail the test: any caller with a lock's token may use it, and it may be meant to
// stay.
//
// It works in real time and in virtual time. With testing/synctest, call New inside the bubble
// and with the bubble's own t.
func New(t testing.TB, opts ...pathlock.Option) *Tree {
	t.Helper()
	tree := &Tree{t: t}
	failing, intact := above.FailingPaths(tree.failure)
	var err error
	if tree.Tree, err = pathlock.New(failing.(pathlock.Storage), "pathlocktest", opts...); err != nil {
		t.Fatalf("pathlocktest: %v", err)
	}
	own := pathlock.WithLimits(pathlock.Limits{Default: pathlock.Infinite, Infinite: true})
	tree.rival, err = pathlock.New(intact.(pathlock.Storage), "pathlocktest", slices.Concat(opts, []pathlock.Option{own})...)
	if err != nil {
		t.Fatalf("pathlocktest: %v", err)
	}
	t.Cleanup(tree.end)
	return tree
}

// end runs when the test is over.
func (t *Tree) end() {
	t.Fail(nil) // so that calls of unknown outcome can be cleaned up
	for _, tree := range []*pathlock.Tree{t.Tree, t.rival} {
		if err := tree.Close(); err != nil {
			t.t.Errorf("pathlocktest: %v", err)
		}
	}
}

// Hold takes a lock as another process would, until release is called or the test ends. With
// Timeouts the lock runs out, like that of a process that died; without any it stays. Hold
// fails the test if other locks conflict.
func (t *Tree) Hold(r pathlock.Request) (release func()) {
	t.t.Helper()
	if len(r.Owner) == 0 {
		r.Owner = []byte("somebody else")
	}
	lock, err := t.rival.Lock(context.Background(), r)
	if err != nil {
		t.t.Fatalf("pathlocktest: Hold(%q): %v", r.Path, err)
	}
	t.mu.Lock()
	t.held = append(t.held, lock.Token)
	t.mu.Unlock()
	return func() {
		t.t.Helper()
		err := t.rival.Release(context.Background(), lock.Token)
		if err != nil && !(errors.Is(err, pathlock.ErrUnknownToken) && lock.Timeout != pathlock.Infinite) { // it ran out
			t.t.Errorf("pathlocktest: Hold(%q): release: %v", r.Path, err)
		}
	}
}

// Lose ends the locks that the code under test has on a path, as an operator would by force.
// Locks above and below it stay. From then on the tokens of the lost locks are unknown: Refresh
// and Release answer ErrUnknownToken, and Confirm does not accept them. The path is free; use
// Hold to see what happens if another process takes it first. Lose fails the test if the code
// under test has no lock on the path.
func (t *Tree) Lose(path string) {
	t.t.Helper()
	on, err := t.rival.Affecting(context.Background(), path, pathlock.Zero)
	if err != nil {
		t.t.Fatalf("pathlocktest: Lose(%q): %v", path, err)
	}
	t.mu.Lock()
	held := slices.Clone(t.held)
	t.mu.Unlock()
	lost := 0
	for _, lock := range on.Same {
		if slices.Contains(held, lock.Token) {
			continue
		}
		if err := t.rival.Release(context.Background(), lock.Token); err != nil {
			t.t.Errorf("pathlocktest: Lose(%q): the lock ended meanwhile: %v", path, err)
		}
		lost++
	}
	if lost == 0 {
		t.t.Fatalf("pathlocktest: Lose(%q): the code under test has no lock on it", path)
	}
}

// Fail makes every call of the storage fail with err, as if the database could not be reached,
// until Fail(nil). The code under test cannot know whether such a call was applied
// (ErrOutcomeUnknown), unless err is joined with store.ErrNotApplied. Locks stay, and run out
// meanwhile; Hold and Lose are not affected.
func (t *Tree) Fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

func (t *Tree) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
