//go:build knobs

package chaos

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

func takeSafetiesOut(o orders) {
	knob.DeadlineFromReply, knob.PathWithoutLook = o.DeadlineFromReply, o.PathWithoutLook
}

// The control grants path locks without a look after they were added.
func TestControlChaosOfPathLocksIsCaughtByTheRule(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	o := pathOrders()
	o.PathWithoutLook = true
	const most = 5
	for runs := range most {
		holds, _ := runPaths(t, o, 5*time.Second, func(_ *cluster, ctx context.Context) { <-ctx.Done() })
		if found, _ := history.PathConflicts(holds, 0); len(found) > 0 {
			t.Log("noticed:", len(found), found[0])
			return
		}
		t.Logf("run %d: %d grants, no violation", runs, len(holds))
	}
	t.Errorf("no violation in %d runs", most)
}

// The control takes the margin away and counts deadlines from replies, which are slow. The
// renewals of one process do not get through, and it holds its leases for long. How often
// that process is served while another client waits is chance: one run has a dozen
// violations, another two, and now and then one has none.
func TestControlChaosIsCaughtByTheChecks(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	caughtWithoutSafeties(t, defaultOrders())
}

func TestControlChaosOnASetIsCaughtByTheChecks(t *testing.T) {
	o := ordersOnASet(t)
	o.TTL = chaosTTL // there are no elections in it
	caughtWithoutSafeties(t, o)
}

func caughtWithoutSafeties(t *testing.T, o orders) {
	o.Margin, o.DeadlineFromReply, o.LongHolds = 0, true, true
	claims := faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "update", "$set") && !waits(c) })
	renewal := faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool {
		return has(c, "update", "$max") && !has(c, "update", "$set") && !waits(c)
	})
	renewals := faultproxy.Command("update").Where(func(c bson.Raw) bool { return has(c, "updates", "0", "u", "$max") })
	const most = 5
	var found []history.Violation
	for runs := 0; len(found) == 0; runs++ {
		require.Less(t, runs, most, "no run showed a violation")
		h, _ := run(t, o, 5*o.TTL, func(c *cluster, ctx context.Context) {
			m := c.members[0]
			m.on(claims, faultproxy.EditReply(slowGrant(o.TTL/2)))
			m.on(renewal, faultproxy.DropCommand())
			m.on(renewals, faultproxy.DropCommand())
			<-ctx.Done()
		})
		found = h.Check()
		t.Logf("%d violations in run %d", len(found), runs)
	}
	checks := map[string]int{}
	for _, v := range found {
		checks[v.Check]++
	}
	t.Log("noticed:", checks, found[0])
}

// slowGrant makes the reply of a claim late if the claim was granted.
func slowGrant(late time.Duration) func(bson.D) bson.D {
	return func(reply bson.D) bson.D {
		for _, e := range reply {
			if v, ok := e.Value.(bson.RawValue); ok && e.Key == "value" && v.Type == bson.TypeEmbeddedDocument {
				time.Sleep(late)
			}
		}
		return reply
	}
}

// waits reports whether a command joins a line, or keeps a place there.
func waits(c bson.Raw) bool {
	dates, _ := c.Lookup("update", "$currentDate").DocumentOK()
	elements, _ := dates.Elements()
	return slices.ContainsFunc(elements, func(e bson.RawElement) bool { return strings.HasPrefix(e.Key(), "waits.") })
}

func has(c bson.Raw, path ...string) bool {
	_, err := c.LookupErr(path...)
	return err == nil
}
