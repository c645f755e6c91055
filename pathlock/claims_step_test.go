package pathlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/store"
)

func newSuffix() string { return " " + rand.Text()[:6] }

// find returns the lock of a token as another process sees it.
func (e *env) find(token string) pathlock.Lock {
	e.Helper()
	for _, l := range e.locks() {
		if l.Token == token {
			return l
		}
	}
	e.Fatalf("no lock has the token that was granted")
	return pathlock.Lock{}
}

var stepClaims = []claim{
	{"ALockCountsForOtherProcesses", func(e *env) {
		l := e.lock(ask("/a"))
		_, err := e.other.Lock(e.ctx(), ask("/a"))
		var c *pathlock.ConflictError
		if !errors.As(err, &c) || len(c.Same) != 1 || c.Same[0].Token != l.Token {
			e.Fatalf("another process got %v", err)
		}
		if err := e.other.Release(e.ctx(), l.Token); err != nil {
			e.Fatal(err)
		}
		e.lock(ask("/a"))
	}},
	{"AConflictListsEveryLockThatStood", func(e *env) {
		for round := range 5 {
			dir := fmt.Sprint("/", round)
			var stood []string
			for _, path := range []string{dir, dir + "/a", dir + "/a/b"} {
				r := ask(path)
				r.Mode, r.Depth = pathlock.Shared, pathlock.Infinity
				stood = append(stood, e.lock(r).Token)
			}
			_, err := e.other.Lock(e.ctx(), ask(dir+"/a"))
			c, refused := errors.AsType[*pathlock.ConflictError](err)
			if !refused || c.More != 0 || len(c.Parents) != 1 || len(c.Same) != 1 || c.Parents[0].Token != stood[0] || c.Same[0].Token != stood[1] {
				e.Errorf("%v, and %d more, of a lock above and one on it", err, c.More)
			}
			r := ask(dir)
			r.Depth = pathlock.Infinity
			_, err = e.other.Lock(e.ctx(), r)
			if c, refused := errors.AsType[*pathlock.ConflictError](err); !refused || c.More != 0 || c.Len() != 3 {
				e.Errorf("%v, of one on it and two below", err)
			}
		}
	}},
	{"OnConflictNothingIsStored", func(e *env) {
		e.lock(ask("/a"))
		r := ask("/")
		r.Depth = pathlock.Infinity
		if _, err := e.other.Lock(e.ctx(), r); !errors.Is(err, pathlock.ErrConflict) {
			e.Fatal(err)
		}
		if all := e.locks(); len(all) != 1 {
			e.Errorf("there are %+v", all)
		}
	}},
	{"OfManyAtOnceOneIsGranted", func(e *env) {
		for round := range 5 {
			path := fmt.Sprint("/", round)
			var granted atomic.Int32
			e.crowd(8, func(tree *pathlock.Tree, _ int) {
				if _, err := tree.Lock(e.ctx(), ask(path)); err == nil {
					granted.Add(1)
				} else if !errors.Is(err, pathlock.ErrConflict) {
					e.Error(err)
				}
			})
			if granted.Load() != 1 {
				e.Errorf("%d were granted", granted.Load())
			}
		}
	}},
	{"NoEditIsLost", func(e *env) {
		const writers, each = 5, 8
		e.crowd(writers, func(tree *pathlock.Tree, i int) {
			for n := range each {
				l, err := tree.Lock(e.ctx(), ask(fmt.Sprintf("/%d/%d", i, n)))
				if err == nil && n%2 == 1 {
					err = tree.Release(e.ctx(), l.Token)
				}
				if err != nil {
					e.Error(err)
				}
			}
		})
		if all := e.locks(); len(all) != writers*each/2 {
			e.Errorf("%d locks are there of %d", len(all), writers*each/2)
		}
	}},
	{"OfOverlappingRequestsAtOnceOneIsGranted", func(e *env) {
		for round := range 5 {
			var granted atomic.Int32
			e.crowd(6, func(tree *pathlock.Tree, i int) {
				r := ask(fmt.Sprint("/", round, strings.Repeat("/x", i))) // each above the next
				r.Depth = pathlock.Infinity
				if _, err := tree.Lock(e.ctx(), r); err == nil {
					granted.Add(1)
				} else if !errors.Is(err, pathlock.ErrConflict) {
					e.Error(err)
				}
			})
			if granted.Load() != 1 {
				e.Errorf("%d were granted", granted.Load())
			}
		}
	}},
	{"SharedRequestsAtOnceAreAllGranted", func(e *env) {
		e.crowd(6, func(tree *pathlock.Tree, i int) {
			r := ask("/a" + strings.Repeat("/x", i/2))
			r.Mode, r.Depth = pathlock.Shared, pathlock.Infinity
			if _, err := tree.Lock(e.ctx(), r); err != nil {
				e.Error(err)
			}
		})
	}},
	{"ACallWithAnEndedContextStoresNothing", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx())
		cancel()
		_, lock := e.tree.Lock(ctx, ask("/a"))
		_, refresh := e.tree.Refresh(ctx, "urn:uuid:none")
		_, locks := e.tree.Locks(ctx)
		for op, err := range map[string]error{"Lock": lock, "Refresh": refresh, "Locks": locks, "Release": e.tree.Release(ctx, "urn:uuid:none")} {
			if !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrNotApplied) {
				e.Errorf("%s: %v", op, err)
			}
		}
		if all := e.locks(); len(all) != 0 {
			e.Errorf("there are %+v", all)
		}
	}},
	{"AWaiterGetsThePathSoonAfterItsRelease", func(e *env) {
		l := e.lock(ask("/a"))
		got := make(chan error, 1)
		go func() {
			_, err := e.other.LockWait(e.ctx(), ask("/a"))
			got <- err
		}()
		time.Sleep(slack)
		select {
		case err := <-got:
			e.Fatalf("granted, or not (%v), while it is held", err)
		default:
		}
		sent := time.Now()
		if err := e.tree.Release(e.ctx(), l.Token); err != nil {
			e.Fatal(err)
		}
		released := time.Now()
		soon := pace.Of(time.Second+slack) + 5*released.Sub(sent) // some more if a round trip takes long
		if err := <-got; err != nil || time.Since(released) > soon {
			e.Errorf("%v, %v after the release", err, time.Since(released))
		}
	}},
	{"AnExclusiveWaiterIsServedAmongSharedLocksThatComeAndGo", func(e *env) {
		e.amongReaders("/a/b", func() {
			r := ask("/a")
			r.Depth = pathlock.Infinity
			l, err := e.other.LockWait(e.ctx(), r)
			if err != nil {
				e.Fatalf("they were there before it, or came later: %v", err)
			}
			if err := e.other.Release(e.ctx(), l.Token); err != nil {
				e.Error(err)
			}
		})
		r := ask("/a")
		r.Mode = pathlock.Shared
		if _, err := e.tree.LockWait(e.ctx(), r); err != nil {
			e.Errorf("it was served, and keeps others out: %v", err)
		}
	}},
}

// amongReaders runs f while three processes share a path, in turns that overlap.
func (e *env) amongReaders(path string, f func()) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, leave := context.WithCancel(e.ctx())
	defer leave()
	r := ask(path)
	r.Mode = pathlock.Shared
	for i := range 3 {
		tree := e.another()
		all.Go(func() {
			time.Sleep(time.Duration(i) * short / 3)
			for ctx.Err() == nil {
				l, err := tree.LockWait(ctx, r)
				if err != nil {
					continue
				}
				time.Sleep(short)
				if err := tree.Release(e.ctx(), l.Token); err != nil {
					e.Error(err)
				}
			}
		})
	}
	time.Sleep(2 * short)
	f()
}

// crowd runs f in goroutines at the same time, each with the tree of another process.
func (e *env) crowd(n int, f func(tree *pathlock.Tree, i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		tree := e.another()
		all.Go(func() {
			<-start
			f(tree, i)
		})
	}
	close(start)
	all.Wait()
}

// documentClaims are about storages that keep documents.
var documentClaims = []claim{
	{"AnUpdateWithAnEndedContextWritesNothing", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx())
		cancel()
		_, err := e.documents().Update(ctx, e.name, func(d *pathlock.Document, _ pathlock.Clock) {
			d.Put(pathlock.Lock{Token: "x", Path: "/a", Mode: pathlock.Exclusive})
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrNotApplied) {
			e.Errorf("update: %v", err)
		}
		if err := e.documents().View(ctx, e.name, func(*pathlock.Document, pathlock.Clock) {}); !errors.Is(err, context.Canceled) {
			e.Errorf("view: %v", err)
		}
	}},
}
