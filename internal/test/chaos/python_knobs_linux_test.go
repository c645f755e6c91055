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
	const most = 5
	for runs := range most {
		h, _ := run(t, o, 15*time.Second, (*cluster).pauses)
		found := h.Check()
		if slices.ContainsFunc(found, func(v history.Violation) bool { return v.Check == "two live leases" }) {
			t.Logf("noticed in run %d: %v", runs, found[0])
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
