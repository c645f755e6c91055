//go:build knobs

package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/store/memstore"
)

// With each safety taken out its scenario must report a violation. If it reports none, the
// test that it controls proves nothing.
func TestControlEveryScenarioReportsAViolationWithoutItsSafety(t *testing.T) {
	late := func(on bool) {
		knob.LateTimer = 0
		if on {
			knob.LateTimer = 500 * time.Millisecond
		}
	}
	for name, control := range map[string]struct {
		set func(on bool)
		run scenario // if it differs from the one with the safety
	}{
		"the deadline counts from the request": {set: func(on bool) { knob.DeadlineFromReply = on }},
		"a margin pays for late timers": {
			set: late,
			run: func(t *testing.T) string { return marginAgainst(t, 0) },
		},
		"release goes by identity": {
			set: func(bool) {},
			run: func(t *testing.T) string { return lateRelease(t, true) },
		},
		"an unknown outcome is cleaned up":            {set: func(on bool) { knob.UnknownIsNotHeld = on }},
		"a lost lease is given back a margin later":   {set: func(on bool) { knob.GiveBackAtDeadline = on }},
		"the old holder is told before the hand-over": {set: func(on bool) { knob.DoneAfterTransfer = on }},
		"every claim has an ID of its own":            {set: func(on bool) { knob.OneID = on }},
	} {
		t.Run(name, func(t *testing.T) {
			plain := scenarios[name]
			if control.run == nil {
				control.run = plain
			}
			defer control.set(false)
			control.set(true)
			violation := inBubble(t, control.run)
			assert.NotEmpty(t, violation, "the violation that is reported")
			t.Log("reported:", violation)
			control.set(false)
			assert.Empty(t, inBubble(t, plain), "with the safety in place")
		})
	}
}

// The waiter asks on the first notice, is refused, looks for a few seconds, and sleeps.
func TestControlWithoutTheSecondNoticeAWaiterSleepsOn(t *testing.T) {
	defer func() { knob.AnnouncedOnce = false }()
	assert.Less(t, slowHandOver(t), 5*time.Second)
	knob.AnnouncedOnce = true
	assert.Greater(t, slowHandOver(t), 15*time.Second, "until the holder would have run out")
}

// slowHandOver returns how long a waiter waits for a key whose release takes over four seconds.
func slowHandOver(t *testing.T) (took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivalry(t)
		r.handOver(t, nil)
		r.near.late.Store(int64(4300 * time.Millisecond))
		took, _ = r.handOver(t, nil)
	})
	return took
}

func TestControlTheMarginPaysForALateTimer(t *testing.T) {
	defer func() { knob.LateTimer = 0 }()
	knob.LateTimer = 500 * time.Millisecond
	assert.Empty(t, inBubble(t, scenarios["a margin pays for late timers"]))
}

// A process that hands the key over to itself without limit: the tests of fairness must
// report that others starve.
func TestControlAGreedyProcessStarvesOthers(t *testing.T) {
	for name, run := range map[string]scenario{
		"a waiter beside workers": func(t *testing.T) string {
			return notStarved(t, memstore.New(), 4, 5*time.Millisecond, true)
		},
		"a waiter that polls beside workers": func(t *testing.T) string {
			return notStarved(t, memstore.New(), 4, 5*time.Millisecond, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { knob.Greedy = false }()
			knob.Greedy = true
			violation := inBubble(t, run)
			assert.NotEmpty(t, violation, "the violation that is reported")
			t.Log("reported:", violation)
		})
	}
}

// If renewals and the ends of leases wait for the observer, other leases suffer from one that hangs.
func TestControlAnObserverThatIsAwaitedDelaysOtherLeases(t *testing.T) {
	knob.ObserverAwaited = true
	defer func() { knob.ObserverAwaited = false }()
	for name, begin := range map[mongolock.Op]bool{mongolock.OpRenew: true, mongolock.OpHold: false} {
		t.Run(string(name), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wrong := harm(t, name, begin)
				assert.NotEmpty(t, wrong)
				t.Log(wrong)
			})
		})
	}
}
