package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/patch"
)

func kept(t *testing.T) *record {
	root, err := findRoot()
	require.NoError(t, err)
	r, err := load(root)
	require.NoError(t, err)
	return r
}

func TestThePageIsWhatTheProgramWrites(t *testing.T) {
	r := kept(t)
	page, err := os.ReadFile(filepath.Join(r.root, pageFile))
	require.NoError(t, err)
	assert.Equal(t, r.page(), string(page), "go run ./internal/test/record")
}

func TestEachFaultHasAPatchAndATest(t *testing.T) {
	r := kept(t)
	patches, err := filepath.Glob(r.patchOf("*"))
	require.NoError(t, err)
	var named []string
	for _, f := range r.faults {
		assert.NotContains(t, named, r.patchOf(f.Name), "twice")
		for _, field := range []string{f.Name, f.Saw, f.Found, f.Fixed} {
			assert.NotEmpty(t, field, f.Name)
		}
		named = append(named, r.patchOf(f.Name))
		p, err := patch.Read(r.patchOf(f.Name))
		if !assert.NoError(t, err) {
			continue
		}
		_, err = patch.Apply(r.root, p)
		assert.NoError(t, err, "mend the patch by hand, or by `record edit` and `record take`")
		tests, err := filepath.Glob(filepath.Join(r.root, f.Module, f.Package, "*_test.go"))
		require.NoError(t, err)
		assert.True(t, declares(t, tests, f.Test), "%s: no test %s in %s", f.Name, f.Test, f.Package)
	}
	assert.ElementsMatch(t, named, patches)
}

func declares(t *testing.T, files []string, test string) bool {
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}

func TestEachCommitOfTheRecordIsInTheHistory(t *testing.T) {
	r := kept(t)
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = r.root
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil || shallow != "false" {
		t.Skip("needs the history")
	}
	for _, f := range r.faults {
		// Of a commit that was rebased since, only the repository of whoever did that knows.
		_, err := git("merge-base", "--is-ancestor", f.Fixed, "HEAD")
		assert.NoError(t, err, "%s is not in the history of HEAD", f.Fixed)
	}
}

// inScratch returns a record of a module with one function, one test and one patch.
func inScratch(t *testing.T, test, fault string) *record {
	r := &record{root: t.TempDir()}
	for name, text := range map[string]string{
		"go.mod":                     "module m\n\ngo 1.26\n",
		"m.go":                       "package m\n\nfunc f() int {\n\treturn 1\n}\n",
		"m_test.go":                  "package m\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n" + test + "\n}\n",
		here + "/faults/Wrong.patch": "--- a/m.go\n+++ b/m.go\n@@ @@\n-\treturn 1\n+\t" + fault + "\n",
	} {
		path := filepath.Join(r.root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return r
}

func TestAFaultIsFoundIfItsTestFailsWithItAndNotWithout(t *testing.T) {
	const right, blind, broken = "if f() != 1 { t.Fatal() }", "f()", "t.Fatal(f())"
	for name, c := range map[string]struct{ test, fault, found string }{
		"found":                  {right, "return 2", ""},
		"not noticed":            {blind, "return 2", "passes although"},
		"does not compile":       {right, "return nil", "something else did"},
		"does not end":           {right, "select {}", ""},
		"there is no such place": {right, "return 1\n \treturn 5", "occur 0 times"},
	} {
		r, f := inScratch(t, c.test, c.fault), fault{Name: "Wrong", Package: ".", Test: "TestF", Within: "2s"}
		if err := r.found(t.Context(), f); c.found == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, c.found, name)
		}
	}
	for test, complaint := range map[string]string{right: "", broken: "without any fault"} {
		err := inScratch(t, test, "return 2").sound(t.Context(), []fault{{Name: "Wrong", Package: ".", Test: "TestF"}})
		assert.Equal(t, complaint == "", err == nil, "%v", err)
	}
	r := inScratch(t, right, "return 2")
	assert.ErrorContains(t, r.sound(t.Context(), []fault{{Name: "Wrong", Package: ".", Test: "TestG"}}), "did not run")
	t.Setenv(serverAt, "")
	assert.ErrorContains(t, r.found(t.Context(), fault{Name: "Wrong", Package: ".", Test: "TestF", Server: true}), "needs a server")
}
