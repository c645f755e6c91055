package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAfterSomeCallsWithoutAnAnswerTheStoreIsOnlyProbed(t *testing.T) {
	var h health
	for range mostAsked {
		assert.True(t, h.answering())
		h.asked++
		h.gotNone()
	}
	assert.False(t, h.answering())
	assert.True(t, h.doubt, "it is, until enough was answered")

	assert.True(t, h.gotAnswer(1, 40), "it answers again")
	assert.True(t, h.answering())
	assert.True(t, h.doubt)
	assert.False(t, h.gotAnswer(2, 40), "it did before")
	h.gotAnswer(3, 40)
	h.gotAnswer(4, 40)
	assert.False(t, h.doubt)
	assert.Equal(t, moment(4), h.last)
	h.asked++
	h.gotNone()
	assert.False(t, h.doubt, "one call of many")
}

func TestAnAnswerEarnsCallsThatNeedNone(t *testing.T) {
	for _, c := range []struct{ waiting, calls int }{{0, mostAsked}, {10, 10 + mostAsked}, {1000, mostEarned + mostAsked}} {
		h := health{}
		for range 10 {
			h.gotAnswer(1, c.waiting)
		}
		n := 0
		for ; h.answering(); n++ {
			h.asked++
		}
		assert.Equal(t, c.calls, n, "%d wait", c.waiting)
	}
}

func TestProbesAreSaved(t *testing.T) {
	var h health
	now := moment(time.Hour)
	probe := func() (n int) {
		for ; h.nextAllowed() <= now; n++ {
			h.paid = max(h.paid, now).Add(probeEvery)
		}
		return n
	}
	assert.Equal(t, probesAtOnce, probe(), "as none was sent for long")
	assert.Zero(t, probe())
	now = now.Add(3 * probeEvery)
	assert.Equal(t, 3, probe())
	now = now.Add(time.Hour)
	assert.Equal(t, probesAtOnce, probe())
}

func TestABulkHasWhatTheStoreAnswersInItsTime(t *testing.T) {
	var p pace
	assert.Equal(t, firstBulk, p.bulk(time.Second))
	p.answered(leastBulk-1, time.Hour)
	assert.Equal(t, firstBulk, p.bulk(time.Second), "that was mostly the round trip")
	p.answered(leastBulk, leastBulk*10*time.Millisecond)
	assert.Equal(t, 100, p.bulk(time.Second))
	p.answered(100, 3*time.Second) // three times as slow: half of that counts
	assert.Equal(t, 50, p.bulk(time.Second))
	assert.Equal(t, leastBulk, p.bulk(time.Millisecond))
	assert.Equal(t, mostBulk, p.bulk(time.Hour))
	p = pace{}
	p.answered(1000, 0)
	assert.Equal(t, mostBulk, p.bulk(time.Second))
}
