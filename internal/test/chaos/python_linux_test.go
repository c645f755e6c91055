package chaos

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// Two of four processes are programs in another language: the locks of examples/other-languages,
// which know of the library what docs/internals/format.md says.
func TestNoChaosAmongTwoLanguagesBreaksAPromise(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	h, faults := run(t, ordersInPython(t), *chaosFor, (*cluster).nemesis)
	grants := grantsByLanguage(h)
	t.Logf("%v: %d grants, %v, %d events, faults %v", *chaosFor, grants["Go"]+grants[inPython], grants, len(h.Events), faults)
	if found := h.Check(); len(found) > 0 {
		for _, v := range found {
			t.Error(v)
		}
		h.Keep(t, "chaos", "two languages", found)
	}
	for _, language := range []string{"Go", inPython} {
		assert.GreaterOrEqual(t, grants[language], max(1, int(*chaosFor/(5*time.Second))), "too few grants to programs in %s: nothing was tried", language)
	}
}

func TestTheLocksInPythonKeepTheirPromises(t *testing.T) {
	uri := testserver.URI(t, "atomic", "operationtime")
	cmd := exec.CommandContext(t.Context(), python(t), "test_locks.py", "-v")
	cmd.Dir, cmd.Env = locksInPython, append(os.Environ(), "MONGODB_URI="+uri, "PYTHONDONTWRITEBYTECODE=1")
	said, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", said)
	assert.Contains(t, string(said), "\nOK\n", "nothing was tested")
}

// inPython is the note of a grant to such a program.
const inPython = "Python"

func grantsByLanguage(h *history.History) map[string]int {
	n := map[string]int{}
	for _, e := range h.Events {
		switch {
		case e.Kind != history.Granted:
		case e.Note == inPython:
			n[inPython]++
		default:
			n["Go"]++
		}
	}
	return n
}

func ordersInPython(t *testing.T) orders {
	o := defaultOrders()
	o.Python, o.Users, o.Keys = python(t), 2, []string{"alpha", "beta", "zeta", "eta"}
	return o
}

// python returns an interpreter that has PyMongo. Without one the test skips, unless
// MONGOLOCK_REQUIRE lists python.
func python(t *testing.T) string {
	t.Helper()
	candidates := []string{"python3"}
	if cache, err := os.UserCacheDir(); err == nil {
		candidates = append([]string{filepath.Join(cache, "mongolock", "python", "bin", "python3")}, candidates...)
	}
	for _, c := range candidates {
		if path, err := exec.LookPath(c); err == nil && exec.Command(path, "-c", "import pymongo").Run() == nil {
			return path
		}
	}
	if slices.Contains(strings.Split(os.Getenv("MONGOLOCK_REQUIRE"), ","), "python") {
		t.Fatal("MONGOLOCK_REQUIRE lists python, and there is none with PyMongo")
	}
	t.Skip("needs python: there is none with PyMongo here, and `make python` makes one")
	return ""
}

const pythonRole = "python"

var locksInPython = filepath.Join("..", "..", "..", "examples", "other-languages")

// becomePython makes this process the worker in Python.
func becomePython(_ context.Context, o orders) error {
	locks, err := filepath.Abs(locksInPython)
	if err != nil {
		return err
	}
	env := append(os.Environ(), "MONGOLOCK_TEST_LOCK="+locks, "PYTHONDONTWRITEBYTECODE=1")
	return syscall.Exec(o.Python, []string{o.Python, filepath.Join("testdata", "worker.py")}, env)
}
