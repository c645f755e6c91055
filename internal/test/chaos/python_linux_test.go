package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// Two of four processes are programs in another language: the locks of examples/other-languages,
// which know of the library what docs/internals/format.md says.
func TestNoChaosAmongTwoLanguagesBreaksAPromise(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	h, faults := run(t, ordersInPython(t), *chaosFor, (*cluster).stalls)
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

// stalls is a nemesis that silences holders for about as long as they may be silent. A client that is
// careless about time is seen then, and hardly otherwise. Every third fault is another one.
func (c *cluster) stalls(ctx context.Context) {
	for ctx.Err() == nil {
		if rand.N(3) > 0 {
			c.stall(ctx)
		} else {
			c.strike(ctx)
		}
		pause(ctx, rand.N(300*time.Millisecond))
	}
}

// stall silences a holder whose replies are slow.
func (c *cluster) stall(ctx context.Context) {
	ttl, m := c.orders.TTL, c.watched(ctx)
	if m == nil {
		return
	}
	slow := m.on(faultproxy.Command("findAndModify"), faultproxy.DelayReply(rand.N(ttl/8)))
	defer slow.remove()
	long := ttl + rand.N(ttl/3)
	switch rand.N(4) {
	case 0:
		c.count("link silent for a little more than a TTL")
		m.each((*faultproxy.Proxy).Silence)
		pause(ctx, long)
		m.each((*faultproxy.Proxy).DropConnections)
		m.each((*faultproxy.Proxy).Restore)
		return
	case 1:
		c.count("process stopped for a little more than a TTL")
	default:
		c.count("process stopped for most of a TTL")
		long = ttl/2 + rand.N(2*ttl/5)
	}
	c.signal(m, syscall.SIGSTOP)
	pause(ctx, long)
	c.signal(m, syscall.SIGCONT)
}

// watched returns a process that holds a key while another one waits for it, and
// one of the two is in Python. It returns nil if there is none.
func (c *cluster) watched(ctx context.Context) *member {
	within, done := context.WithTimeout(ctx, time.Second)
	defer done()
	cursor, err := c.direct.Database(c.orders.DB).Collection(lockColl).Find(within, bson.D{
		{Key: "line.0", Value: bson.D{{Key: "$exists", Value: true}}},
	})
	var all []struct {
		Line    []string
		Holders map[string]struct{ Owner string }
	}
	if err != nil || cursor.All(within, &all) != nil { // the server may be down
		return nil
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, key := range all {
		for _, h := range key.Holders {
			i := slices.IndexFunc(c.members, func(m *member) bool { return m.owner == h.Owner })
			if i >= 0 && (c.members[i].python || strings.HasPrefix(key.Line[0], "x::")) { // it hears no wake-ups
				return c.members[i]
			}
		}
	}
	return nil
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
