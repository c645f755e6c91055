package pathlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/pathlock"
)

const many = 10_000

// crowded makes a tree in memory with many locks: a hundred directories of a hundred
// files, each file locked.
func crowded(t testing.TB) *pathlock.Tree {
	t.Helper()
	tree := newTree(t)
	for i := range many {
		r := held{path: fmt.Sprintf("/dir%d/file%d", i/100, i%100), mode: modes[i%2], depth: depths[i/2%2]}.request()
		_, err := tree.Lock(t.Context(), r)
		require.NoError(t, err)
	}
	return tree
}

// requests are the measured calls. None scans the tree: each costs the depth of its path,
// and the locks that it returns.
func requests(t testing.TB, tree *pathlock.Tree) map[string]func() {
	t.Helper()
	must := func(err error) {
		require.NoError(t, err)
	}
	ctx := t.Context()
	free := held{path: "/dir50/new", mode: pathlock.Exclusive, depth: pathlock.Infinity}.request()
	taken := held{path: "/dir50/file50", mode: pathlock.Exclusive, depth: pathlock.Infinity}.request()
	mine, err := tree.Lock(ctx, held{path: "/mine/file", mode: pathlock.Exclusive, depth: pathlock.Zero}.request())
	must(err)
	return map[string]func(){
		"LockAndRelease": func() {
			l, err := tree.Lock(ctx, free)
			must(err)
			must(tree.Release(ctx, l.Token))
		},
		"Conflict": func() {
			if _, err := tree.Lock(ctx, taken); err == nil {
				t.Fatal("granted")
			}
		},
		"Refresh": func() {
			_, err := tree.Refresh(ctx, mine.Token)
			must(err)
		},
		"Confirm": func() { must(tree.Confirm(ctx, []string{mine.Token}, pathlock.Modify("/mine/file"))) },
		"Delete":  func() { must(tree.Confirm(ctx, []string{mine.Token}, pathlock.Delete("/mine"))) },
		"Affecting": func() {
			_, err := tree.Affecting(ctx, "/dir50/file50", pathlock.Infinity)
			must(err)
		},
	}
}

func BenchmarkOn10000Locks(b *testing.B) {
	tree := crowded(b)
	for name, request := range requests(b, tree) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				request()
			}
		})
	}
}

// It measures the best of many short runs, so that a busy machine does not make it fail.
func TestARequestOn10000LocksTakesAtMost20Microseconds(t *testing.T) {
	if underRace {
		t.Skip("the race detector's speed is not the library's: `make test` runs it without")
	}
	tree := crowded(t)
	for name, request := range requests(t, tree) {
		best := time.Hour
		for range 200 {
			const each = 20
			start := time.Now()
			for range each {
				request()
			}
			best = min(best, time.Since(start)/each)
		}
		if best > 20*time.Microsecond {
			t.Errorf("%s takes %v", name, best)
		}
		t.Logf("%s: %v", name, best)
	}
}
