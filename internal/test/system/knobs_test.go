//go:build knobs

package system

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/knob"
)

func init() {
	childPrograms["greedy worker"] = func() {
		knob.Greedy = true
		workAsTold()
	}
}

// The control of the test of a waiter beside a looping process. If that process keeps the key
// from others, the waiter waits until the loop is over.
func TestControlAGreedyProcessKeepsAWaiterOut(t *testing.T) {
	f := newFeedFixture(t)
	greedy := worker{f.child("greedy worker")}
	greedy.do(workerOrder{Do: "pairs", Key: "warm", Count: 1})
	waits, grants := besideALoop(f, greedy, 3)
	longest := slices.Max(waits)
	assert.Greater(t, longest, 2*time.Second, "waited at most %v, while the other had it %d times: the test shows nothing", longest, grants)
}

// The control: a compare-and-swap that compares nothing.
func TestControlWithoutTheRevisionSeveralTriesWin(t *testing.T) {
	f := newFixture(t, "operationtime") // without it each grant is confirmed
	clients := f.clients(20)
	faulty(t, &knob.SwapWithoutRev, &knob.SwapByRevAlone)
	for round := range 10 {
		key := fmt.Sprint("k", round)
		f.insertExpired(key, time.Minute)
		winners := f.tries(clients, key)
		for _, l := range winners {
			_ = l.Release()
		}
		if len(winners) > 1 {
			return
		}
	}
	t.Error("one winner each time: it is not the revision that protects")
}

// The control: the judge notices if lost leases free the next holder's.
func TestControlClientsThatReleaseByKeyAloneBreakThePromise(t *testing.T) {
	faulty(t, &knob.ReleaseByKey)
	for range 10 { // a very busy machine may show nothing for some rounds
		if overlaps, _, _ := cutOff(t).overlaps(); overlaps > 0 {
			return
		}
	}
	t.Error("no overlap: the judge sees nothing")
}

func TestControlAReleaseByKeyAloneFreesALaterHolder(t *testing.T) {
	faulty(t, &knob.ReleaseByKey)
	assert.False(t, lateRelease(t), "the later holder stays: it is not the ID that protects")
}

// The control: a clean-up in a session of its own does not stop the claim that arrives later.
func TestControlACleanUpInAnotherSessionDoesNotStopALateClaim(t *testing.T) {
	f := newFixture(t, "retryable")
	c, proxy := f.behind(withRetries, mongolock.TTL(time.Second))
	faulty(t, &knob.UndoElsewhere)
	lateClaim(t, f, c, proxy, withRetries, func() {})
	assert.NotNil(t, f.document("k"), "refused all the same: it is not the session that protects")
	time.Sleep(1200 * time.Millisecond) // it expires
}

// The control: a deadline that rests on the sample at hand.
func TestControlADeadlineFromAnOldSampleIsNotHonoured(t *testing.T) {
	faulty(t, &knob.DeadlineFromSample)
	_, taken := asleep(t, 15*time.Second)
	assert.True(t, taken, "honoured all the same: it is not the reply's own time that protects")
}

// faulty sets switches until the test is over. No other test may run meanwhile.
func faulty(t *testing.T, switches ...*bool) {
	for _, s := range switches {
		*s = true
		t.Cleanup(func() { *s = false })
	}
}
