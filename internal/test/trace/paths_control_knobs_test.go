//go:build knobs && go1.26

package trace_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// electing has clocks far apart, and many elections.
var electing = simulation.Settings{Margin: -1, Elections: true}

// pathControls are the safeties of path locks.
var pathControls = []control{
	{1, "a grant without the look after it was added", func(on bool) { knob.PathWithoutLook = on }, plain, "is granted", "no look that asks for all in its way has shown it since it was added"},
	{1, "a grant beside a lock that was added a moment ago", func(on bool) { knob.PathDoubtIgnored = on }, plain, "is granted", "each look showed a lock in its way"},
	{1, "expiry by a clock that is ahead", func(on bool) { knob.PathByOwnClock = on }, plain, "sends remove", "it removes a lock that is not over"},
	{2, "a refresh that revives", func(on bool) { knob.PathRefreshRevives = on }, plain, "sends at once", "it does not ask for enough time left"},
	{25, "a refresh that revives, after a look", func(on bool) { knob.PathRefreshRevives = on }, plain, "is told of the refresh", "it was refreshed when it was over"},
	{193, "a refresh that goes on when its caller has left", func(on bool) { knob.PathRefreshAbandoned = on }, electing, "sends refresh", "nobody waits for it any more"},
	{2, "a release by path", func(on bool) { knob.PathReleaseByPath = on }, plain, "sends remove", "it names no lock"},
	{75, "what is in the way removed though it has changed", func(on bool) { knob.PathDropWithoutRev = on }, electing, "sends remove", "it removes by its token a lock that is in hand"},
	{2, "the election of the reader in place of the writer's", func(on bool) { knob.EpochOfReader = on }, electing, "sends remove", "it removes a lock that is not over"},
	{14, "a lock of unknown outcome not removed", func(on bool) { knob.UnknownIsNotHeld = on }, plain, "nothing more comes", "a lock that nobody was granted was not removed"},
	{1, "the locks above forgotten", func(on bool) { knob.PathAncestorForgotten = on }, plain, "is granted", "no look that asks for all in its way has shown it since it was added"},
}

func TestControlEverySafetyOfPathLocksTakenOutIsRefused(t *testing.T) {
	refusesEach(t, pathControls, ofPaths)
}
