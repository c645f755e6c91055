//go:build knobs

package mongostore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/knob"
)

// Each control takes one safety out and shows that a test of this package notices. The
// switches are the process's: no control runs beside another test.

// faulty sets switches until the test is over.
func faulty(t *testing.T, switches ...*bool) {
	for _, s := range switches {
		*s = true
		t.Cleanup(func() { *s = false })
	}
}

func TestControlATakeoverByRevisionAloneDropsARenewedHolder(t *testing.T) {
	faulty(t, &knob.SwapByRevAlone)
	_, lost := renewedMeanwhile(t, time.Now().Add(time.Hour))
	assert.True(t, lost, "spared all the same: naming the dropped is not what protects")
}

func TestControlATakeoverThatNamesDatesDropsAHolderRenewedByASlowerClock(t *testing.T) {
	faulty(t, &knob.SwapByDate)
	_, lost := renewedMeanwhile(t, time.Now().Add(-2*time.Hour))
	assert.True(t, lost, "spared all the same: the beat is not what protects")
}

func TestControlTheRevisionAloneSparesADocumentThatWasReplaced(t *testing.T) {
	faulty(t, &knob.SwapByRevAlone)
	assert.False(t, replacedMeanwhile(t), "taken over, though its revision is another")
}

func TestControlATakeoverWithoutTheRevisionTakesAnUnseenHoldersKey(t *testing.T) {
	faulty(t, &knob.SwapByRevAlone, &knob.SwapWithoutRev)
	assert.True(t, replacedMeanwhile(t), "spared all the same: rev is not what protects")
}

func TestControlAHandOverByKeyAloneTakesAnotherHoldersKey(t *testing.T) {
	faulty(t, &knob.HandOverByKey)
	assert.True(t, handedOverLate(t), "spared all the same: rev is not what protects")
}

func TestControlAReleaseByKeyRemovesTheNextHolder(t *testing.T) {
	faulty(t, &knob.ReleaseByKey)
	assert.False(t, takenMeanwhile(t), "held all the same: the ID is not what protects")
}

func TestControlEachRaceOfTheLineIsLostWithoutItsSafety(t *testing.T) {
	switches := map[string]*bool{
		"GrantOutOfTurn": &knob.GrantOutOfTurn, "StalePassedBlindly": &knob.StalePassedBlindly, "OfferUncompared": &knob.OfferUncompared,
		"ReleaseDropsLine": &knob.ReleaseDropsLine, "ReleaseKeepsRev": &knob.ReleaseKeepsRev,
	}
	for _, race := range lineRaces {
		t.Run(race.name, func(t *testing.T) {
			f, line := newFixtureOnLine(t)
			faulty(t, switches[race.safety])
			wrong := race.run(f, line)
			assert.NotEmpty(t, wrong, "nobody noticed")
			t.Log("noticed:", wrong)
		})
	}
}

func TestControlADeadlineFromAnOldSampleIsTrustedTooLong(t *testing.T) {
	faulty(t, &knob.DeadlineFromSample)
	late, _ := trustedTooLong(t, time.Second)
	assert.Positive(t, late, "honoured all the same: it is not the reply's own time that protects")
}

func TestControlWithoutTheMarkAStrangersDocumentIsChanged(t *testing.T) {
	f := newFixture(t)
	faulty(t, &knob.MarkIgnored)
	h := &storeAndShell{Store: f.store, coll: f.coll}
	h.shape.Store(1) // has our fields, of our types, expired
	intact, err := h.Foreign("k")
	require.NoError(t, err)
	_, err = f.store.Acquire(f.ctx(), f.placed("k"))
	assert.Error(t, intact(), "left alone all the same (%v): the mark is not what protects", err)
}

func TestControlAnUndoInAnotherSessionLeavesAGhost(t *testing.T) {
	testserver.Need(t, "retryable")
	f, line := newFixtureOnLine(t)
	faulty(t, &knob.UndoElsewhere)
	stalledClaim(t, f, line)
	assert.False(t, f.absent("k"), "refused all the same: it is not the session that protects")
}

func TestControlEachRaceOfSharingIsLostWithoutItsSafety(t *testing.T) {
	switches := map[string]*bool{
		"JoinWritesMap": &knob.JoinWritesMap, "JoinKeepsRev": &knob.JoinKeepsRev, "GrantOutOfTurn": &knob.GrantOutOfTurn,
		"JoinDropsTheLiving": &knob.JoinDropsTheLiving, "LastDeletesHeld": &knob.LastDeletesHeld, "UndoDeletes": &knob.UndoDeletes,
		"LargestLimit": &knob.LargestLimit,
	}
	for _, race := range shareRaces {
		t.Run(race.name, func(t *testing.T) {
			f, line := newFixtureOnLine(t)
			faulty(t, switches[race.safety])
			wrong := race.run(f, line)
			assert.NotEmpty(t, wrong, "nobody noticed")
			t.Log("noticed:", wrong)
		})
	}
}
