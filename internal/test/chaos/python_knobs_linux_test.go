//go:build knobs

package chaos

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// The control's Python programs hold a key for long, and do not ask the clock whether it is still theirs.
func TestControlChaosAmongTwoLanguagesIsCaughtByTheChecks(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	o := ordersInPython(t)
	o.PythonTrusts = true
	findsTwoLiveLeases(t, o, 15*time.Second, (*cluster).pauses)
}

// The control's Python programs take a key over when its holder was silent for half a TTL.
func TestControlChaosTellsAHastyTakeover(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	o := ordersInPython(t)
	o.PythonHasty = true
	findsTwoLiveLeases(t, o, 40*time.Second, (*cluster).stalls)
}

// findsTwoLiveLeases fails unless one of a few runs has them.
func findsTwoLiveLeases(t *testing.T, o orders, long time.Duration, nemesis func(*cluster, context.Context)) {
	t.Helper()
	const most = 5
	for runs := range most {
		h, _ := run(t, o, long, nemesis)
		found := h.Check()
		if slices.ContainsFunc(found, func(v history.Violation) bool { return v.Check == "two live leases" }) {
			t.Logf("noticed in run %d: %d, the first %v", runs, len(found), found[0])
			return
		}
	}
	t.Errorf("no two live leases in %d runs", most)
}

// pauses stops one program in Python after the other beyond its TTL.
func (c *cluster) pauses(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		m := c.members[i%len(c.members)]
		if !m.python {
			continue
		}
		pause(ctx, c.orders.TTL/2)
		c.signal(m, syscall.SIGSTOP)
		pause(ctx, 3*c.orders.TTL)
		c.signal(m, syscall.SIGCONT)
	}
}
