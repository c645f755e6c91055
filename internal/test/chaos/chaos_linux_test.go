package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

var chaosFor = flag.Duration("chaos.for", 10*time.Second, "how long the nemesis works")

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{workerRole: testchild.As(work), pathRole: testchild.As(workOnPaths), pythonRole: testchild.As(becomePython)})
}

const (
	processes = 3
	chaosTTL  = 2 * time.Second
)

func defaultOrders() orders {
	return orders{DB: "chaos", Users: 4, Keys: allKeys, TTL: chaosTTL, Margin: -1}
}

func TestNoChaosBreaksAPromise(t *testing.T) {
	testserver.URI(t, "crash", "stepdown", "transactions")
	h, faults := run(t, defaultOrders(), *chaosFor, func(c *cluster, ctx context.Context) { c.untilTried(ctx, c.nemesis) })
	grants, saved := grantsByWay(h.Events), savesInTransaction(h.Events)
	total := 0
	for _, n := range grants {
		total += n
	}
	t.Logf("%v: %d grants, %v, %d saves in a transaction, %d events, faults %v", *chaosFor, total, grants, saved, len(h.Events), faults)
	if found := h.Check(); len(found) > 0 {
		for _, v := range found {
			t.Error(v)
		}
		h.Keep(t, "chaos", "chaos", found)
	}
	assert.GreaterOrEqual(t, total, int(*chaosFor/time.Second), "too few grants: nothing was tried")
	if *chaosFor >= enoughForAll {
		assert.Empty(t, untried(h.Events))
	}
}

// enoughForAll is how long a run is of which everything is expected that workers do.
const enoughForAll = 30 * time.Second

// untilTried lets a nemesis work, if it was to work long, for up to half as long again until workers
// have done everything that they do: by chance none may have come to one thing or the other.
func (c *cluster) untilTried(ctx context.Context, nemesis func(context.Context)) {
	nemesis(ctx)
	for range 5 {
		if *chaosFor < enoughForAll || len(untried(readLogs(c.t, c.dir))) == 0 {
			return
		}
		more, cancel := context.WithTimeout(c.t.Context(), *chaosFor/10)
		nemesis(more)
		cancel()
	}
}

// untried tells what workers have not done once.
func untried(events []history.Event) (what []string) {
	grants := grantsByWay(events)
	for _, way := range ways {
		if grants[way] == 0 {
			what = append(what, "no grant "+way)
		}
	}
	if savesInTransaction(events) == 0 {
		what = append(what, "no save in a transaction succeeded")
	}
	return what
}

func savesInTransaction(events []history.Event) (n int) {
	for _, e := range events {
		if e.Kind == history.Wrote && e.Note == inTransaction {
			n++
		}
	}
	return n
}

// The ways in which workers come by a lease.
var ways = []string{"exclusively", "as a reader", "with a permit", "of two keys together", "of the document", "to a client that is closed", "to one with many leases"}

func grantsByWay(events []history.Event) map[string]int {
	n := map[string]int{}
	for _, e := range events {
		switch {
		case e.Kind != history.Granted:
		case e.Note == together:
			n[ways[3]]++
		case e.Note == closing:
			n[ways[5]]++
		case e.Note == closingMany:
			n[ways[6]]++
		case e.Key == document:
			n[ways[4]]++
		case e.Limit > 0:
			n[ways[2]]++
		case e.Shared:
			n[ways[1]]++
		default:
			n[ways[0]]++
		}
	}
	return n
}

// run lets worker processes work for a while under a nemesis, and returns what they
// believed and which faults there were.
func run(t *testing.T, o orders, long time.Duration, nemesis func(*cluster, context.Context)) (*history.History, map[string]int) {
	n := processes
	if o.Python != "" {
		n++
	}
	c := startCluster(t, o, n)
	registers := watchRegisters(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	nemesis(c, ctx)
	for _, m := range c.members {
		m.process.Kill()
	}
	h := &history.History{TTL: o.TTL, Margin: o.TTL / 10, Tolerance: o.TTL/40 + time.Millisecond, NoDB: true, DecideIn: time.Minute}
	if o.Margin >= 0 {
		h.Margin = o.Margin
	}
	tokens := registers()
	require.NotEmpty(t, tokens, "no fenced register was read")
	h.Events = append(readLogs(t, c.dir), tokens...)
	h.Sort()
	return h, c.faults
}

// readLogs returns the events that the workers wrote. A line that a kill cut short does not
// count.
func readLogs(t *testing.T, dir string) (events []history.Event) {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for line := range bytes.Lines(text) {
			var e history.Event
			if json.Unmarshal(line, &e) == nil {
				events = append(events, e)
			}
		}
	}
	return events
}
