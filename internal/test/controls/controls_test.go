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
	args := []string{"vet", "-tags", "knobs", "-overlay", path}
	for file := range files {
		if dir := "./" + filepath.Dir(file); !slices.Contains(args, dir) {
			args = append(args, dir)
		}
	}
	vet := exec.CommandContext(t.Context(), "go", args...)
	vet.Dir = root
	out, err := vet.CombinedOutput()
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
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		p, err := parse(name, string(content))
		require.NoError(t, err)
		if !assert.Contains(t, switches, name, "this patch has no switch") {
			continue
		}
		for _, h := range p.hunks {
			assert.False(t, strings.HasSuffix(h.file, "_test.go") || strings.HasPrefix(h.file, "internal/test/"), "%s takes a safety out of the tests, in %s", name, h.file)
		}
		for _, other := range switches {
			uses := slices.ContainsFunc(p.hunks, func(h hunk) bool {
				return slices.ContainsFunc(h.lines, func(l string) bool { return l[0] == '+' && mentions(l, other) })
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
	out, err := git(root, "ls-files", "--", "*.go", ":!*_test.go", ":!internal/test")
	require.NoError(t, err)
	for file := range strings.Lines(out) {
		content, err := os.ReadFile(filepath.Join(root, strings.TrimSpace(file)))
		require.NoError(t, err)
		assert.NotContains(t, string(content), knobPath, file)
	}
}

func TestABuildWithSwitchesAndWithoutFaultsSaysWhatToDo(t *testing.T) {
	test := exec.CommandContext(t.Context(), "go", "test", "-tags", "knobs", "./"+knobs)
	test.Dir = root(t)
	out, err := test.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), "make controls PKG=")
}

const before = "package p\n\nfunc f() {\n\tone()\n\ttwo()\n\tthree()\n\tone()\n\tfour()\n}\n"

// scratch is a repository with one source.
func scratch(t *testing.T) (root string, write func(string), read func() string) {
	root = t.TempDir()
	path := filepath.Join(root, "p.go")
	write = func(content string) { require.NoError(t, os.WriteFile(path, []byte(content), 0o600)) }
	read = func() string {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(content)
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, here), 0o700))
	write(before)
	for _, args := range [][]string{{"init", "-q"}, {"add", "p.go"}} {
		_, err := git(root, args...)
		require.NoError(t, err)
	}
	return root, write, read
}

func TestPatchesAreTakenFromSourcesAndAppliedTogether(t *testing.T) {
	root, write, read := scratch(t)
	faulty := map[string]string{
		"One":  strings.Replace(before, "\tone()\n\tfour()", "\tif !knob.One {\n\t\tone()\n\t}\n\tfour()", 1),
		"Four": strings.Replace(before, "\tfour()\n", "\tfour()\n\tif knob.Four {\n\t\tfive()\n\t}\n", 1),
	}
	for name, content := range faulty {
		write(content)
		require.NoError(t, take(root, name))
		assert.Equal(t, before, read(), "restored")
		require.NoError(t, edit(root, name))
		assert.Equal(t, content, strings.Replace(read(), "\n\nimport "+knobPath, "", 1))
		require.NoError(t, take(root, name))
	}
	assert.Error(t, take(root, "None"), "nothing has changed")
	files, err := patched(root)
	require.NoError(t, err)
	assert.Equal(t, "package p\n\nimport "+knobPath+"\n\nfunc f() {\n\tone()\n\ttwo()\n\tthree()\n\tif !knob.One {\n\t\tone()\n\t}\n\tfour()\n\tif knob.Four {\n\t\tfive()\n\t}\n}\n", string(files["p.go"]))
}

func TestAPatchThatFitsNowhereOrTwiceIsRefused(t *testing.T) {
	root, _, _ := scratch(t)
	for hunk, complaint := range map[string]string{
		" \tone()\n+\tfault()\n":              "occur 2 times in p.go",
		" \tsix()\n+\tfault()\n":              "occur 0 times in p.go",
		" \ttwo()\n-\tthree()\n+\tfault()\n":  "",
		" \ttwo()\n-\tthree()\n+\tfault2()\n": "remove the same line",
	} {
		p, err := parse("Bad", "diff --git a/p.go b/p.go\n--- a/p.go\n+++ b/p.go\n@@\n"+hunk)
		require.NoError(t, err)
		all := []patch{p}
		if complaint == "remove the same line" {
			all = append(all, patch{name: "Other", hunks: p.hunks})
		}
		if _, err = apply(root, all...); complaint == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, complaint)
		}
	}
	_, err := parse("Bad", "diff --git a/p.go b/p.go\n--- a/p.go\n+++ b/p.go\n")
	assert.ErrorContains(t, err, "no hunk")
}

func TestAPatchMayAddAFile(t *testing.T) {
	root, _, _ := scratch(t)
	p, err := parse("Adds", "diff --git a/q.go b/q.go\n--- /dev/null\n+++ b/q.go\n@@\n+package p\n+\n+var on = knob.Adds\n")
	require.NoError(t, err)
	files, err := apply(root, p)
	require.NoError(t, err)
	assert.Equal(t, "package p\n\nimport "+knobPath+"\n\nvar on = knob.Adds", strings.TrimSpace(string(files["q.go"])))
}
