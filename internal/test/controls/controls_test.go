package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/patch"
)

func root(t *testing.T) string {
	dir, err := findRoot()
	require.NoError(t, err)
	return dir
}

func TestEachHunkAppliesOnceAndTheOverlayCompiles(t *testing.T) {
	root := root(t)
	path, err := overlay(root)
	require.NoError(t, err, "mend the patch by hand, or by `controls edit` and `controls take`")
	files, err := patched(root)
	require.NoError(t, err)
	args := []string{"build", "-tags", "knobs", "-overlay", path}
	for file := range files {
		if dir := "./" + filepath.Dir(file); !slices.Contains(args, dir) {
			args = append(args, dir)
		}
	}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = root
	out, err := build.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

// Command.patch gives each command of mongostore to a function of package knob, which has switches
// of its own.
func TestEachSwitchHasAPatchAndEachPatchASwitch(t *testing.T) {
	root := root(t)
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, knobs, "knob.go"), nil, 0)
	require.NoError(t, err)
	var switches []string
	for _, decl := range parsed.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
			for _, spec := range d.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					switches = append(switches, name.Name)
				}
			}
		}
	}
	commands, err := os.ReadFile(filepath.Join(root, knobs, "command.go"))
	require.NoError(t, err)
	switches = append(switches, "Command")
	patches, err := filepath.Glob(filepath.Join(root, here, "*.patch"))
	require.NoError(t, err)
	for _, path := range patches {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		p, err := patch.Read(path)
		require.NoError(t, err)
		if !assert.Contains(t, switches, name, "this patch has no switch") {
			continue
		}
		for _, h := range p.Hunks {
			assert.False(t, strings.HasSuffix(h.File, "_test.go") || strings.HasPrefix(h.File, "internal/test/"), "%s takes a safety out of the tests, in %s", name, h.File)
		}
		for _, other := range switches {
			uses := slices.ContainsFunc(p.Hunks, func(h patch.Hunk) bool {
				return slices.ContainsFunc(h.Lines, func(l string) bool { return l[0] == '+' && mentions(l, other) })
			})
			assert.Equal(t, other == name, uses, "does %s.patch use the switch %s?", name, other)
		}
	}
	for _, s := range switches {
		if !slices.Contains(patches, filepath.Join(root, here, s+".patch")) {
			assert.Contains(t, string(commands), s, "the switch %s has no patch", s)
		}
	}
}

// mentions reports whether a text uses a switch.
func mentions(text, name string) bool {
	for {
		_, after, found := strings.Cut(text, "knob."+name)
		if !found {
			return false
		}
		if after == "" || !strings.ContainsAny(after[:1], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") {
			return true
		}
		text = after
	}
}

func TestNothingShippedKnowsASwitch(t *testing.T) {
	root := root(t)
	out, err := patch.Git(root, "ls-files", "--", "*.go", ":!*_test.go", ":!internal/test")
	require.NoError(t, err)
	for file := range strings.Lines(out) {
		content, err := os.ReadFile(filepath.Join(root, strings.TrimSpace(file)))
		require.NoError(t, err)
		assert.NotContains(t, string(content), `"github.com/mongolock/mongolock/internal/test/knob"`, file)
	}
}

func TestABuildWithSwitchesAndWithoutFaultsSaysWhatToDo(t *testing.T) {
	test := exec.CommandContext(t.Context(), "go", "test", "-tags", "knobs", "./"+knobs)
	test.Dir = root(t)
	out, err := test.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), "make controls PKG=")
}
