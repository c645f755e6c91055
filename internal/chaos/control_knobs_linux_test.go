//go:build knobs

package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/testserver"
)

func takeSafetiesOut(o orders) { knob.DeadlineFromReply = o.Reply }

// The control: no margin, and a deadline that counts from replies which are slow.
func TestControlChaosIsCaughtByTheChecker(t *testing.T) {
	testserver.URI(t, "crash", "stepdown")
	o := usual()
	o.Margin, o.Reply = 0, true
	h, _ := run(t, o, 20*time.Second, func(tr *troop, ctx context.Context) {
		for ctx.Err() == nil {
			m := tr.members[0]
			r := m.proxy.On(faultproxy.Command("findAndModify", "update"), faultproxy.DelayReply(chaosTTL/2))
			pause(ctx, chaosTTL)
			r.Remove()
			m.proxy.Cut()
			pause(ctx, 2*chaosTTL)
			m.proxy.Restore()
		}
	})
	found := h.Check()
	if len(found) == 0 {
		t.Fatal("nobody noticed")
	}
	t.Log("noticed:", found[0])
}
