//go:build knobs

package mongolock

import (
	"slices"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
)

func init() {
	mongoChildren["greedy worker"] = func() {
		knob.Greedy = true
		workAsTold()
	}
}

// The control of the test that a waiter is served beside a process that takes the
// key again and again: where that one keeps no turns, it waits until the loop is over.
func TestControlAGreedyProcessKeepsAWaiterOut(t *testing.T) {
	r := newFeedRoom(t)
	greedy := worker{r.child("greedy worker")}
	greedy.do(workerOrder{Do: "pairs", Key: "warm", Count: 1})
	waits, grants := besideALoop(r, greedy, 3)
	if longest := slices.Max(waits); longest <= 2*time.Second {
		t.Errorf("waited at most %v, while the other had it %d times: the test shows nothing", longest, grants)
	}
}
