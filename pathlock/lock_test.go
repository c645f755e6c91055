package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/pathlock"
)

func TestWrongRequestsAreRefusedByNameAndNothingIsStored(t *testing.T) {
	tree := newTree(t)
	for want, spoil := range map[string]func(*pathlock.Request){
		`Request.Mode is "Exclusive"`:           func(r *pathlock.Request) { r.Mode = "Exclusive" },
		`Request.Depth is "1"`:                  func(r *pathlock.Request) { r.Depth = "1" },
		"Request.Owner has 16385 bytes":         func(r *pathlock.Request) { r.Owner = make([]byte, 16<<10+1) },
		"Request.Timeouts[0] is 0s":             func(r *pathlock.Request) { r.Timeouts = []time.Duration{0} },
		"Request.Timeouts[1] is 99ms":           func(r *pathlock.Request) { r.Timeouts = []time.Duration{time.Second, 99 * time.Millisecond} },
		"Request.Timeouts[0] is -1s":            func(r *pathlock.Request) { r.Timeouts = []time.Duration{-time.Second} },
		"Request.Timeouts[0] is 1193046h28m16s": func(r *pathlock.Request) { r.Timeouts = []time.Duration{pathlock.MaxTimeout + time.Second} },
		`not a path: "/a/.."`:                   func(r *pathlock.Request) { r.Path = "/a/.." },
		`not a path: "./a"`:                     func(r *pathlock.Request) { r.Path = "./a" },
		`not a path: "/a\xff": not valid UTF-8`: func(r *pathlock.Request) { r.Path = "/a\xff" },
		`not a path: "/a\x00": contains NUL`:    func(r *pathlock.Request) { r.Path = "/a\x00" },
		"4097 bytes are more than 4096":         func(r *pathlock.Request) { r.Path = strings.Repeat("x", 4097) },
		"20000 bytes are more than 4096":        func(r *pathlock.Request) { r.Path = strings.Repeat("/x", 10_000) },
	} {
		r := held{path: "/a", mode: pathlock.Exclusive, depth: pathlock.Zero}.request()
		spoil(&r)
		for name, call := range map[string]func(context.Context, pathlock.Request) (pathlock.Lock, error){"Lock": tree.Lock, "LockWait": tree.LockWait} {
			_, err := call(t.Context(), r)
			assert.ErrorContains(t, err, want, name)
		}
	}
	_, err := tree.Refresh(t.Context(), "x", time.Millisecond)
	assert.ErrorContains(t, err, "timeouts[0] is 1ms")
	_, err = tree.Affecting(t.Context(), "..", pathlock.Infinity)
	assert.ErrorContains(t, err, `not a path: ".."`)
	_, err = tree.Affecting(t.Context(), "/a", "1")
	assert.ErrorContains(t, err, `the depth is "1"`)
	assert.ErrorContains(t, tree.Confirm(t.Context(), nil, pathlock.Modify("a/.")), `not a path: "a/."`)
	assert.ErrorContains(t, tree.Confirm(t.Context(), nil, pathlock.Change{Path: "/"}), "a Change that none of Modify, AddTo and Delete made")
	all, err := tree.Locks(t.Context())
	require.NoError(t, err)
	assert.Empty(t, all)
}

func TestTheZeroRequestIsAnExclusiveLockOfEverything(t *testing.T) {
	tree := newTree(t)
	l, err := tree.Lock(t.Context(), pathlock.Request{})
	require.NoError(t, err)
	assert.Equal(t, "/", l.Path)
	assert.Equal(t, pathlock.Exclusive, l.Mode)
	assert.Equal(t, pathlock.Infinity, l.Depth)
	assert.Equal(t, 10*time.Minute, l.Timeout)
	_, err = tree.Lock(t.Context(), pathlock.Request{})
	var conflict *pathlock.ConflictError
	require.ErrorAs(t, err, &conflict)
	assert.Equal(t, pathlock.Request{Path: "/", Mode: pathlock.Exclusive, Depth: pathlock.Infinity}, conflict.Request)
}

func TestWrongArgumentsOfNewAreRefusedByName(t *testing.T) {
	with := func(opts ...pathlock.Option) func() (*pathlock.Tree, error) {
		return func() (*pathlock.Tree, error) { return pathlock.New(pathlock.InMemory(), "x", opts...) }
	}
	named := func(name string) func() (*pathlock.Tree, error) {
		return func() (*pathlock.Tree, error) { return pathlock.New(pathlock.InMemory(), name) }
	}
	for want, build := range map[string]func() (*pathlock.Tree, error){
		"the storage is nil":        func() (*pathlock.Tree, error) { return pathlock.New(nil, "x") },
		"name of the tree is empty": named(""),
		"129 bytes":                 named(strings.Repeat("x", 129)),
		"not valid UTF-8":           named("\xff"),
		"a nil Option":              with(nil),
		"WithAlias(nil)":            with(pathlock.WithAlias(nil)),
		"WithLogger(nil)":           with(pathlock.WithLogger(nil)),
		"WithMargin(-1s)":           with(pathlock.WithMargin(-time.Second)),
		"Request.Owner has":         with(pathlock.WithOwner(strings.Repeat("x", 20_000))),
		"Least is 1ms":              with(pathlock.WithLimits(pathlock.Limits{Least: time.Millisecond})),
		"Most is 2562047h":          with(pathlock.WithLimits(pathlock.Limits{Most: 1<<63 - 1})),
		"is more than Most":         with(pathlock.WithLimits(pathlock.Limits{Least: time.Hour, Most: time.Minute})),
		"Default is 2h":             with(pathlock.WithLimits(pathlock.Limits{Default: 2 * time.Hour, Most: time.Hour})),
		"Default is Infinite":       with(pathlock.WithLimits(pathlock.Limits{Default: pathlock.Infinite})),
	} {
		tree, err := build()
		assert.Nil(t, tree)
		assert.ErrorContains(t, err, want)
	}
	m, err := pathlock.OnMongo(nil)
	assert.Nil(t, m)
	assert.ErrorContains(t, err, "collection is nil")
	d, err := pathlock.InDir("")
	assert.Nil(t, d)
	assert.Error(t, err)
}

func TestAllWrongArgumentsOfNewAreNamedTogether(t *testing.T) {
	_, err := pathlock.New(nil, "", nil, pathlock.WithAlias(nil), pathlock.WithLogger(nil))
	for _, want := range []string{"storage is nil", "name of the tree is empty", "a nil Option", "WithAlias(nil)", "WithLogger(nil)"} {
		assert.ErrorContains(t, err, want)
	}
}

func TestErrorsMatchThoseOfTheSameNameInTheRoot(t *testing.T) {
	tree := newTree(t)
	require.NoError(t, tree.Close())
	_, err := tree.Lock(t.Context(), pathlock.Request{Path: "/a"})
	assert.ErrorIs(t, err, pathlock.ErrClosed)
	assert.ErrorIs(t, err, mongolock.ErrClosed)
	assert.ErrorIs(t, pathlock.ErrOutcomeUnknown, mongolock.ErrOutcomeUnknown)
	assert.NotErrorIs(t, pathlock.ErrOutcomeUnknown, mongolock.ErrClosed)
}

func TestAnAliasThatAnswersNonsenseIsAnError(t *testing.T) {
	for want, alias := range map[string]func(string) (string, error){
		"no such link": func(string) (string, error) { return "", errors.New("no such link") },
		"not a path":   func(string) (string, error) { return "/..", nil },
	} {
		_, err := newTree(t, pathlock.WithAlias(alias)).Lock(t.Context(), pathlock.Request{Path: "/a"})
		assert.ErrorContains(t, err, `the alias of "/a"`)
		assert.ErrorContains(t, err, want)
	}
}

func TestAnAliasThatFailsDoesNotKeepALockFromBeingReleased(t *testing.T) {
	var broken error
	tree := newTree(t, pathlock.WithAlias(func(path string) (string, error) { return strings.ToLower(path), broken }))
	l, err := tree.Lock(t.Context(), pathlock.Request{Path: "/A"})
	require.NoError(t, err)
	broken = errors.New("the link's disk is away")
	assert.NoError(t, tree.Release(t.Context(), l.Token))
}

func TestPathsAreComparedBySegments(t *testing.T) {
	for _, same := range [][]string{{"/a", "a", "/a/", "//a", "a//"}, {"/", "", "//"}, {"/a/b", "a//b", "/a///b/"}} {
		for _, p := range same {
			clean, err := pathlock.Clean(p)
			require.NoError(t, err)
			assert.Equal(t, same[0], clean, "%q", p)
		}
	}
	tree := newTree(t)
	for _, p := range []string{"/f", "/f#1", "/f?1", "/f%20", "/f ", "/F", "/ff", "/...", "/..f", "/é", "/e\u0301"} {
		_, err := tree.Lock(t.Context(), pathlock.Request{Path: p, Depth: pathlock.Infinity})
		assert.NoError(t, err, "%q is not a path of its own", p)
	}
}

func TestAReleaseOfAnUnknownTokenIsRefusedAndTheLockStays(t *testing.T) {
	tree := newTree(t)
	l, err := tree.Lock(t.Context(), pathlock.Request{Path: "/a/b"})
	require.NoError(t, err)
	for _, token := range []string{"urn:uuid:none", ""} {
		assert.ErrorIs(t, tree.Release(t.Context(), token), pathlock.ErrUnknownToken, "%q", token)
	}
	all, err := tree.Locks(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.NoError(t, tree.Release(t.Context(), l.Token))
}

// A token is as good as the lock, so no log may show one.
func TestErrorsDoNotShowTokens(t *testing.T) {
	tree := newTree(t)
	r := pathlock.Request{Path: "/a"}
	l, err := tree.Lock(t.Context(), r)
	require.NoError(t, err)
	_, conflict := tree.Lock(t.Context(), r)
	for _, err := range []error{
		conflict,
		tree.Confirm(t.Context(), nil, pathlock.Modify("/a")),
		errors.Join(tree.Release(t.Context(), l.Token), tree.Release(t.Context(), l.Token)),
	} {
		require.Error(t, err)
		assert.NotContains(t, err.Error(), l.Token)
	}
}

// The example of the package comment is part of a tested one, so it compiles.
func TestTheExampleOfThePackageCommentIsATestedOne(t *testing.T) {
	comment, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	var code []string
	for line := range strings.Lines(string(comment)) {
		if strings.HasPrefix(line, "//\t") && len(code) < 7 {
			code = append(code, "\t"+strings.TrimPrefix(line, "//\t"))
		}
	}
	require.NotEmpty(t, code)
	assert.Contains(t, string(examples), strings.Join(code, ""))
}

func TestAThousandLocksOfOneOwnerOnOnePath(t *testing.T) {
	tree := newTree(t)
	r := pathlock.Request{Path: "/a", Mode: pathlock.Shared, Owner: []byte("one")}
	tokens := map[string]bool{}
	for range 1000 {
		l, err := tree.Lock(t.Context(), r)
		require.NoError(t, err)
		tokens[l.Token] = true
	}
	assert.Len(t, tokens, 1000, "each has a token of its own")
	for token := range tokens {
		require.NoError(t, tree.Release(t.Context(), token))
	}
	r.Mode = pathlock.Exclusive
	_, err := tree.Lock(t.Context(), r)
	assert.NoError(t, err)
}

func TestALockOfTheRootIsRefusedForEverythingBelow(t *testing.T) {
	tree := newTree(t)
	for i := range 2500 {
		_, err := tree.Lock(t.Context(), pathlock.Request{Path: fmt.Sprintf("/dir%d/file%d", i%50, i)})
		require.NoError(t, err)
	}
	_, err := tree.Lock(t.Context(), pathlock.Request{Depth: pathlock.Infinity})
	var c *pathlock.ConflictError
	require.ErrorAs(t, err, &c)
	assert.Equal(t, pathlock.MaxListed, c.Len())
	assert.Equal(t, 1500, c.More)
	_, err = tree.Lock(t.Context(), pathlock.Request{Depth: pathlock.Zero})
	assert.NoError(t, err, "of the root alone")
}
