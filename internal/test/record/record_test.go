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
	assert.Equal(t, r.page(), string(page), "make record")
}

func TestEachFaultHasAPatchOrAReason(t *testing.T) {
	r := kept(t)
	patches, err := filepath.Glob(r.patchOf("*"))
	require.NoError(t, err)
	var named []string
	for _, f := range r.faults {
		assert.NotContains(t, named, r.patchOf(f.Name), "twice")
		for _, field := range []string{f.Name, f.Saw, f.Introduced, f.Found, f.Fixed} {
			assert.NotEmpty(t, field, f.Name)
		}
		if f.Gone != "" {
			assert.Empty(t, f.Test, f.Name)
			continue
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
	for name := range r.reproduced {
		assert.Contains(t, named, r.patchOf(name))
	}
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
	shallow, err := r.output(t.Context(), "git", "rev-parse", "--is-shallow-repository")
	if err != nil || shallow != "false" {
		t.Skip("needs the history")
	}
	var commits []string
	for _, f := range r.faults {
		commits = append(commits, f.Introduced, f.Fixed)
	}
	for _, m := range r.reproduced {
		commits = append(commits, m.Commit)
	}
	for _, e := range r.runs {
		commits = append(commits, e.Commit)
	}
	for _, s := range r.searches {
		commits = append(commits, s.Commit)
	}
	for _, c := range commits {
		c, _, _ = strings.Cut(c, ",")
		// Of a commit that was rebased since, only the repository of whoever did that knows.
		_, err := r.output(t.Context(), "git", "merge-base", "--is-ancestor", c, "HEAD")
		assert.NoError(t, err, "%s is not in the history of HEAD", c)
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

func TestWhatRunsPrintIsRead(t *testing.T) {
	for out, want := range map[string]run{
		"    simulation_test.go:235: seeds=30 commands=900 events=7 local=2 hours=3 reply-lost=4 slow=5\n" +
			"    simulation_test.go:235: seeds=10 commands=100 events=7 local=2 hours=1 slow=1\nsum seeds=10 commands=100 hours=1\n": {
			Server: "none: servers in memory, in virtual time", Seeds: "40", Faults: "10", Violations: "0", Shows: []string{"1000 commands in 4 simulated hours"},
		},
		"    simulation_test.go:236: simulation_test.go:177: seed 7: two live leases, at 1s: \"k\"\n": {
			Server: "none: servers in memory, in virtual time", Violations: "1", Shows: []string{"seed 7: two live leases"},
		},
		"devmongo: using secantus, which cannot\n    chaos_linux_test.go:50: 1m0s: 412 grants, map[exclusively:80 with a permit:3], 9000 events, faults map[command lost:3 link cut:2]\n": {
			Server: "SecantusDB, one member", Grants: "412", Faults: "2 kinds", Violations: "0", Shows: []string{"9000 events"},
		},
		"devmongo: using mongod\n    set_linux_test.go:70: 1m0s: 41 grants, map[], 900 events\n    set_linux_test.go:72:    1 × link cut\n    set_linux_test.go:72:    2 × elections\n" +
			"    set_linux_test.go:80: no margin, at 2s: x\n": {
			Server: "mongod, a set", Grants: "41", Faults: "2 kinds", Violations: "1", Shows: []string{"900 events", "no margin"},
		},
		"ok     Lock 1 s\n12 passed, 0 failed\nin 3m\n": {Server: "none: the specification", Violations: "0", Shows: []string{"12 checks passed, 0 failed"}},
	} {
		var got run
		got.read(out)
		assert.Equal(t, want, got, out)
	}
}

func TestARunIsKeptWhetherItHeldOrNot(t *testing.T) {
	r := inScratch(t, "", "")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "t"}} {
		_, err := r.output(t.Context(), "git", args...)
		require.NoError(t, err)
	}
	// The driver's version is asked of the module, which has none here.
	require.Error(t, r.run(t.Context(), "simulation", []string{"true"}))
	root := kept(t).root
	require.NoError(t, os.Remove(filepath.Join(r.root, "go.mod")))
	require.NoError(t, exec.CommandContext(t.Context(), "cp", filepath.Join(root, "go.mod"), filepath.Join(root, "go.sum"), r.root).Run())
	require.NoError(t, r.run(t.Context(), "simulation", []string{"true"}))
	require.Error(t, r.run(t.Context(), "simulation", []string{"false"}))
	var runs []run
	require.NoError(t, read(filepath.Join(r.root, here, "runs.json"), &runs))
	require.Len(t, runs, 2)
	assert.True(t, runs[0].OK)
	assert.False(t, runs[1].OK)
	assert.NotEmpty(t, runs[0].Commit)
	assert.Regexp(t, `^v2\.`, runs[0].Driver)
}

func TestTheSeedsOfASearchAreThoseThatNoticedFirst(t *testing.T) {
	seeds, err := firstSeeds(strings.NewReader("=== RUN   TestControlEverySafetyTakenOutIsNoticed\n" +
		"=== RUN   TestControlEverySafetyTakenOutIsNoticed/$set_instead_of_$max\n    control_knobs_test.go:125: seed 6: ghost\n" +
		"=== RUN   TestControlEverySafetyTakenOutIsNoticed/not_noticed\n    control_knobs_test.go:109: no violation in 2000 seeds\n" +
		"=== RUN   TestControlEverySafetyOfPathLocksTakenOutIsNoticed/a_release\n    paths_control_knobs_test.go:55: seed 3: overlap\n" +
		"=== RUN   TestControlEverySafetyTakenOutIsNoticed/session:_a_sweep\n    control_knobs_test.go:125: seed 41: tokens\n"))
	require.NoError(t, err)
	assert.Equal(t, map[string]uint64{"$set instead of $max": 6, "session: a sweep": 41, "path locks: a release": 3}, seeds)
	_, err = firstSeeds(strings.NewReader("PASS\n"))
	assert.Error(t, err)
}

func TestTheMedianIsOfTheLastFiveSearchesThatNoticed(t *testing.T) {
	var searches []search
	for _, seed := range []uint64{9000, 5, 0, 40, 7, 30} {
		searches = append(searches, search{Seeds: map[string]uint64{"a": seed}})
	}
	assert.Equal(t, uint64(7), median(lastSeeds(searches, "a")))
	assert.Zero(t, median(nil))
}
