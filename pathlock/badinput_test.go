package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

func TestWrongRequestsAreRefusedByNameAndNothingIsStored(t *testing.T) {
	tree := newTree(t)
	good := held{path: "/a", mode: pathlock.Exclusive, depth: pathlock.Zero}.request()
	for want, spoil := range map[string]func(*pathlock.Request){
		`Request.Mode is ""`:                    func(r *pathlock.Request) { r.Mode = "" },
		`Request.Mode is "Exclusive"`:           func(r *pathlock.Request) { r.Mode = "Exclusive" },
		`Request.Depth is ""`:                   func(r *pathlock.Request) { r.Depth = "" },
		`Request.Depth is "1"`:                  func(r *pathlock.Request) { r.Depth = "1" },
		"Request.Owner has 16385 bytes":         func(r *pathlock.Request) { r.Owner = make([]byte, pathlock.MaxOwner+1) },
		"Request.Timeouts[0] is 0s":             func(r *pathlock.Request) { r.Timeouts = []time.Duration{0} },
		"Request.Timeouts[1] is 99ms":           func(r *pathlock.Request) { r.Timeouts = []time.Duration{time.Second, 99 * time.Millisecond} },
		"Request.Timeouts[0] is -1s":            func(r *pathlock.Request) { r.Timeouts = []time.Duration{-time.Second} },
		"Request.Timeouts[0] is 1193046h28m16s": func(r *pathlock.Request) { r.Timeouts = []time.Duration{pathlock.MaxTimeout + time.Second} },
		`not a path: "/a/.."`:                   func(r *pathlock.Request) { r.Path = "/a/.." },
		`not a path: "./a"`:                     func(r *pathlock.Request) { r.Path = "./a" },
		`not a path: "/a\xff": not valid UTF-8`: func(r *pathlock.Request) { r.Path = "/a\xff" },
		`not a path: "/a\x00": contains NUL`:    func(r *pathlock.Request) { r.Path = "/a\x00" },
		"4097 bytes are more than 4096":         func(r *pathlock.Request) { r.Path = strings.Repeat("x", 4097) },
	} {
		r := good
		spoil(&r)
		for what, ask := range map[string]func(context.Context, pathlock.Request) (pathlock.Lock, error){"Lock": tree.Lock, "LockWait": tree.LockWait} {
			if _, err := ask(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: want %q, got %v", what, want, err)
			}
		}
	}
	_, refresh := tree.Refresh(t.Context(), "x", time.Millisecond)
	_, affected := tree.Affected(t.Context(), "..", true, true)
	for want, err := range map[string]error{
		"timeouts[0] is 1ms":    refresh,
		`not a path: ".."`:      affected,
		`not a path: "a/./b"`:   tree.Release(t.Context(), "a/./b", "x"),
		`not a path: "a/."`:     tree.Confirm(t.Context(), nil, pathlock.Modify("a/.")),
		`Change.Kind is "move"`: tree.Confirm(t.Context(), nil, pathlock.Change{Path: "/", Kind: "move"}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if all, err := tree.Locks(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestWrongTreesAreRefusedByName(t *testing.T) {
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
		"WithAlias":                 with(pathlock.WithAlias(nil)),
		"WithPolicy":                with(pathlock.WithPolicy(nil)),
		"Least is 1ms":              with(pathlock.WithLimits(pathlock.Limits{Least: time.Millisecond})),
		"Most is 2562047h":          with(pathlock.WithLimits(pathlock.Limits{Most: 1<<63 - 1})),
		"is more than Most":         with(pathlock.WithLimits(pathlock.Limits{Least: time.Hour, Most: time.Minute})),
		"Default is 2h":             with(pathlock.WithLimits(pathlock.Limits{Default: 2 * time.Hour, Most: time.Hour})),
		"Default is Infinite":       with(pathlock.WithLimits(pathlock.Limits{Default: pathlock.Infinite})),
	} {
		if tree, err := build(); tree != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if m, err := pathlock.OnMongo(nil); m != nil || err == nil {
		t.Errorf("%v", err)
	}
	if d, err := pathlock.InDir(""); d != nil || err == nil {
		t.Errorf("%v", err)
	}
}

func TestAPolicyOrAliasThatAnswersNonsenseIsAnError(t *testing.T) {
	tree := newTree(t, pathlock.WithPolicy(func([]time.Duration) time.Duration { return 0 }))
	r := held{path: "/a", mode: pathlock.Exclusive, depth: pathlock.Zero}.request()
	if _, err := tree.Lock(t.Context(), r); err == nil || !strings.Contains(err.Error(), "the policy picked 0s") {
		t.Error(err)
	}
	mine := errors.New("no such link")
	for want, alias := range map[string]func(string) (string, error){
		"no such link": func(string) (string, error) { return "", mine },
		"not a path":   func(string) (string, error) { return "/..", nil },
	} {
		_, err := newTree(t, pathlock.WithAlias(alias)).Lock(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), `the alias of "/a"`) || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}

func TestPathsAreComparedBySegments(t *testing.T) {
	for _, same := range [][]string{{"/a", "a", "/a/", "//a", "a//"}, {"/", "", "//"}, {"/a/b", "a//b", "/a///b/"}} {
		for _, p := range same {
			if clean, err := pathlock.Clean(p); err != nil || clean != same[0] {
				t.Errorf("%q is %q, %v, not %q", p, clean, err, same[0])
			}
		}
	}
	tree := newTree(t)
	for _, p := range []string{"/f", "/f#1", "/f?1", "/f%20", "/f ", "/F", "/ff", "/...", "/..f", "/é", "/e\u0301"} {
		if _, err := tree.Lock(t.Context(), held{path: p, mode: pathlock.Exclusive, depth: pathlock.Infinity}.request()); err != nil {
			t.Errorf("%q is not a path of its own: %v", p, err)
		}
	}
}

func TestAReleaseThatIsRefusedSaysWhyAndTheLockStays(t *testing.T) {
	tree := newTree(t)
	r := held{path: "/a/b", mode: pathlock.Exclusive, depth: pathlock.Infinity}.request()
	r.Owner = []byte("me")
	l, err := tree.Lock(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := []error{pathlock.ErrUnknownToken, pathlock.ErrWrongPath, pathlock.ErrWrongOwner}
	for _, c := range []struct {
		path, token, owner string
		want               error
	}{
		{"/a/b", "urn:uuid:none", "me", pathlock.ErrUnknownToken},
		{"/a/b", "", "me", pathlock.ErrUnknownToken},
		{"/a", l.Token, "me", pathlock.ErrWrongPath},
		{"/", l.Token, "me", pathlock.ErrWrongPath},
		{"/a/bb", l.Token, "me", pathlock.ErrWrongPath},
		{"/a/b", l.Token, "you", pathlock.ErrWrongOwner},
		{"/a/b/c", l.Token, "", pathlock.ErrWrongOwner},
	} {
		err := tree.Release(t.Context(), c.path, c.token, pathlock.ByOwner([]byte(c.owner)))
		for _, verdict := range verdicts {
			if errors.Is(err, verdict) != (verdict == c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
	if all, err := tree.Locks(t.Context()); err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if err := tree.Release(t.Context(), "/a/b/c/d", l.Token, pathlock.ByOwner([]byte("me"))); err != nil {
		t.Errorf("from a path in its scope: %v", err)
	}
	if l, err = tree.Lock(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := tree.Release(t.Context(), "/elsewhere", l.Token, pathlock.ByOwner([]byte("you")), pathlock.Force()); err != nil {
		t.Errorf("by force: %v", err)
	}
}

func TestErrorsDoNotShowTokens(t *testing.T) {
	tree := newTree(t)
	l, err := tree.Lock(t.Context(), held{path: "/a", mode: pathlock.Exclusive, depth: pathlock.Zero}.request())
	if err != nil {
		t.Fatal(err)
	}
	_, conflict := tree.Lock(t.Context(), held{path: "/a", mode: pathlock.Exclusive, depth: pathlock.Zero}.request())
	for _, err := range []error{conflict, tree.Confirm(t.Context(), nil, pathlock.Modify("/a")), tree.Release(t.Context(), "/b", l.Token), tree.Release(t.Context(), "/a", l.Token, pathlock.ByOwner([]byte("x")))} {
		if err == nil || strings.Contains(fmt.Sprint(err), l.Token) {
			t.Errorf("who reads a log could write: %v", err)
		}
	}
}
