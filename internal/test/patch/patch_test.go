package patch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	require.NoError(t, os.MkdirAll(filepath.Join(root, "faults"), 0o700))
	write(before)
	for _, args := range [][]string{{"init", "-q"}, {"add", "p.go"}} {
		_, err := Git(root, args...)
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
	var all []Patch
	for name, content := range faulty {
		file := filepath.Join(root, "faults", name+".patch")
		write(content)
		require.NoError(t, Take(root, file))
		assert.Equal(t, before, read(), "restored")
		require.NoError(t, Edit(root, file))
		assert.Equal(t, content, strings.Replace(read(), "\n\nimport "+knobPath, "", 1))
		require.NoError(t, Take(root, file))
		p, err := Read(file)
		require.NoError(t, err)
		all = append(all, p)
	}
	assert.Error(t, Take(root, filepath.Join(root, "None.patch")), "nothing has changed")
	files, err := Apply(root, all...)
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
		p, err := Parse("Bad", "diff --git a/p.go b/p.go\n--- a/p.go\n+++ b/p.go\n@@\n"+hunk)
		require.NoError(t, err)
		all := []Patch{p}
		if complaint == "remove the same line" {
			all = append(all, Patch{Name: "Other", Hunks: p.Hunks})
		}
		if _, err = Apply(root, all...); complaint == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, complaint)
		}
	}
	_, err := Parse("Bad", "diff --git a/p.go b/p.go\n--- a/p.go\n+++ b/p.go\n")
	assert.ErrorContains(t, err, "no hunk")
}

func TestAPatchMayAddAFile(t *testing.T) {
	root, _, _ := scratch(t)
	p, err := Parse("Adds", "diff --git a/q.go b/q.go\n--- /dev/null\n+++ b/q.go\n@@\n+package p\n+\n+var on = knob.Adds\n")
	require.NoError(t, err)
	files, err := Apply(root, p)
	require.NoError(t, err)
	assert.Equal(t, "package p\n\nimport "+knobPath+"\n\nvar on = knob.Adds", strings.TrimSpace(string(files["q.go"])))
}
