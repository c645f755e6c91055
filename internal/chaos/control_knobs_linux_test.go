//go:build knobs

package chaos

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/testserver"
)

func takeSafetiesOut(o orders) { knob.DeadlineFromReply = o.Reply }

// The control: no margin, and deadlines that count from replies which are slow, in a
// process whose renewals do not get through and that holds long what it has.
func TestControlChaosIsCaughtByTheChecker(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	o := usual()
	o.Margin, o.Reply, o.Long = 0, true, true
	claims := faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool { return has(c, "update", "$set") })
	renewal := faultproxy.Command("findAndModify").Where(func(c bson.Raw) bool {
		return has(c, "update", "$max") && !has(c, "update", "$set") && !has(c, "update", "$max", "wantedUntil")
	})
	renewals := faultproxy.Command("update").Where(func(c bson.Raw) bool { return has(c, "updates", "0", "u", "$max") })
	h, _ := run(t, o, 10*time.Second, func(tr *troop, ctx context.Context) {
		proxy := tr.members[0].proxy
		proxy.On(claims, faultproxy.DelayReply(chaosTTL/2))
		proxy.On(renewal, faultproxy.DropCommand())
		proxy.On(renewals, faultproxy.DropCommand())
		<-ctx.Done()
	})
	found := h.Check()
	if len(found) == 0 {
		t.Fatal("nobody noticed")
	}
	checks := map[string]int{}
	for _, v := range found {
		checks[v.Check]++
	}
	t.Log("noticed:", checks, found[0])
}

func has(c bson.Raw, path ...string) bool {
	_, err := c.LookupErr(path...)
	return err == nil
}
