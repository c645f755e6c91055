//go:build knobs && go1.26

package trace_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

var routed = simulation.Settings{Margin: -1, Servers: "routers"}

var alteredRouted = []alteration{
	{"a key that moves, and stays where it was", without("the document moves to"), "is granted", "NoCollateral", nil},
	{"a holder that was never seen still", without("has the answer to look"), "sends swap", "it drops a holder that none of the three rules gives up", nil},
}

// routedControls are the safeties of clients behind routers.
var routedControls = []control{
	{50, "all shards judged by one clock", func(on bool) { knob.ShardsOfOneClock = on }, routed, "sends swap", "it drops a holder that none of the three rules gives up"},
}

func TestControlEverySafetyBehindRoutersTakenOutIsRefused(t *testing.T) {
	refusesEach(t, routedControls, ofLocks)
}

func TestControlAnAlteredHistoryBehindRoutersIsRefused(t *testing.T) {
	refusesAltered(t, alteredRouted, ofLocks, routed)
}
