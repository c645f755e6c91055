//go:build knobs

package chaos

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/history"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/testserver"
)

func takeSafetiesOut(o orders) { knob.DeadlineFromReply = o.Reply }

// The control: no margin, and deadlines that count from replies which are slow, in a
// process whose renewals do not get through and that holds long what it has. How often
// that process is served while somebody waits for it is chance: a run notices it a dozen
// times, or twice, and so one now and then may not at all.
func TestControlChaosIsCaughtByTheChecker(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	o := usual()
	o.Margin, o.Reply, o.Long = 0, true, true
	claims := faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "update", "$set") })
	renewal := faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool {
		return has(c, "update", "$max") && !has(c, "update", "$set") && !has(c, "update", "$max", "wantedUntil")
	})
	renewals := faultproxy.Command("update").Where(func(c bson.Raw) bool { return has(c, "updates", "0", "u", "$max") })
	var found []history.Violation
	for runs := 0; len(found) == 0; runs++ {
		if runs == 5 {
			t.Fatal("nobody noticed")
		}
		h, _ := run(t, o, 10*time.Second, func(tr *troop, ctx context.Context) {
			proxy := tr.members[0].proxy
			proxy.On(claims, faultproxy.EditReply(slowly))
			proxy.On(renewal, faultproxy.DropCommand())
			proxy.On(renewals, faultproxy.DropCommand())
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

// slowly is the reply of a claim, half a TTL late if it was granted.
func slowly(reply bson.D) bson.D {
	for _, e := range reply {
		if v, ok := e.Value.(bson.RawValue); ok && e.Key == "value" && v.Type == bson.TypeEmbeddedDocument {
			time.Sleep(chaosTTL / 2)
		}
	}
	return reply
}

func has(c bson.Raw, path ...string) bool {
	_, err := c.LookupErr(path...)
	return err == nil
}
