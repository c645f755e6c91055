package pathlock_test

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

const (
	short = 300 * time.Millisecond // the timeout of locks that run out during a claim
	slack = 250 * time.Millisecond // how late a storage may free a path
	bound = 20 * time.Second       // bounds each wait
)

// A Place is a place where trees are kept. Open returns the storage of one more process. In
// memory, where there are no other processes, it may be the same one each time.
type Place interface {
	// Open opens the storage of one more process.
	Open(t testing.TB) pathlock.Storage
}

// A Stranger is a Place that can put a record of another program where a tree is kept. It is
// optional. Each call may choose another shape. intact fails if the record has been changed or
// removed.
type Stranger interface {
	// Foreign puts the record of another program where the tree is kept.
	Foreign(tree string) (intact func() error, err error)
}

// Limited is a Place with pathlock.Documents that have a size limit: their trees refuse
// locks with ErrTooLarge. It is optional.
type Limited interface {
	// Limited does nothing: having the method is the mark.
	Limited()
}

// keepsTheContract proves a storage. It runs in real time, with short timeouts and some slack. Claims
// run in parallel, because most of them wait, except those that write megabytes.
func keepsTheContract(t *testing.T, newPlace func(t testing.TB) Place) {
	place := newPlace(t)
	kept := pathlock.DocumentsOf(place.Open(t))
	for _, c := range limitsOf(place) {
		t.Run(c.name, func(t *testing.T) { c.body(newEnv(t, newPlace)) })
	}
	for _, c := range claimsOn(place, kept != nil) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.body(newEnv(t, newPlace))
		})
	}
}

// A claim is one behaviour of a storage, and its test.
type claim struct {
	name string
	body func(*env)
}

func claimsOn(p Place, documents bool) []claim {
	all := slices.Concat(dataClaims, stepClaims, timeClaims)
	if documents {
		all = append(all, documentClaims...)
	}
	if _, ok := p.(Stranger); ok {
		all = append(all, strangerClaims...)
	}
	return all
}

func limitsOf(p Place) []claim {
	if _, ok := p.(Limited); ok {
		return limitClaims
	}
	return nil
}

// documents returns the documents of the storage, which the claims about these need.
func (e *env) documents() pathlock.Documents { return pathlock.DocumentsOf(e.storage) }

// env is what the test of a claim has: a place, and a tree with a name of its own.
type env struct {
	testing.TB
	place   Place
	storage pathlock.Storage // the storage of this process
	name    string
	tree    *pathlock.Tree
	other   *pathlock.Tree // the same tree in another process
}

func newEnv(t testing.TB, newPlace func(testing.TB) Place) *env {
	e := &env{TB: t, place: newPlace(t), name: "tree " + rand.Text()}
	e.storage = e.place.Open(t)
	e.tree, e.other = e.called(e.name), e.another()
	return e
}

// another returns the tree in one more process.
func (e *env) another() *pathlock.Tree { return e.on(e.place.Open(e), e.name) }

// called returns another tree of this process.
func (e *env) called(name string) *pathlock.Tree { return e.on(e.storage, name) }

func (e *env) on(storage pathlock.Storage, name string) *pathlock.Tree {
	e.Helper()
	tree, err := pathlock.New(storage, name, pathlock.WithLimits(pathlock.Limits{Infinite: true}))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = tree.Close() })
	return tree
}

func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	e.Cleanup(cancel)
	return ctx
}

// ask requests an exclusive lock of one path for a minute.
func ask(path string) pathlock.Request {
	return pathlock.Request{
		Path: path, Mode: pathlock.Exclusive, Depth: pathlock.Zero,
		Timeouts: []time.Duration{time.Minute},
	}
}

func (e *env) lock(r pathlock.Request) pathlock.Lock {
	e.Helper()
	l, err := e.tree.Lock(e.ctx(), r)
	if err != nil {
		e.Fatalf("lock of %q, which is free: %v", r.Path, err)
	}
	return l
}

// locks returns the locks of the tree as another process sees them.
func (e *env) locks() []pathlock.Lock {
	e.Helper()
	all, err := e.other.Locks(e.ctx())
	if err != nil {
		e.Fatal(err)
	}
	return all
}
