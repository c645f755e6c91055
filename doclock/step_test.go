package doclock

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
)

// stepped has a process hold document "o" whose lease is renewed, and another one try for it
// from a step of the primary's clock on. It returns when that one got it, if it did within ten
// minutes, when the holder was told, and what the other has logged.
func stepped(t *testing.T, by time.Duration, knew bool) (got, told time.Duration, log string) {
	synctest.Test(t, func(t *testing.T) {
		s := newReplicaSet(0)
		coll := s.collection(t)
		put(t, coll, order{ID: "o", State: "ready"}, order{ID: "another", State: "ready"})
		held, err := locksOn[order](t, coll, With(mongolock.TTL(deadTTL))).TryAcquire(t.Context(), ID("o"))
		require.NoError(t, err)
		var out bytes.Buffer
		rival := locksOn[order](t, s.collection(t), WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		if knew {
			_, err := rival.TryAcquire(t.Context(), ID("another"))
			require.NoError(t, err)
		}

		began := time.Now()
		s.Step(by)
		for time.Since(began) < 10*time.Minute && got == 0 {
			if _, err := rival.TryAcquire(t.Context(), ID("o")); err == nil {
				got = time.Since(began) + 1
			}
			time.Sleep(deadTTL / 20)
		}
		if got > 0 {
			<-held.Lease().Done()
			told = time.Since(began)
		}
		log = out.String()
	})
	return got, told, log
}

const wasStepped = "the database's clock was stepped"

func TestAProcessThatKnewTheClockBeforeAStepTakesNoLiveDocument(t *testing.T) {
	for _, by := range []time.Duration{3 * time.Second, 30 * time.Second, -30 * time.Second} {
		got, _, log := stepped(t, by, true)
		assert.Zero(t, got, "%v", by)
		assert.Contains(t, log, wasStepped, "%v", by)
	}
}

// This is what a step forward can still do.
func TestAHolderIsToldOfAStepByItsNextRenewal(t *testing.T) {
	for _, by := range []time.Duration{30 * time.Second, 2 * time.Minute} {
		got, told, _ := stepped(t, by, false)
		assert.Positive(t, got, "%v: nothing was to be shown", by)
		assert.LessOrEqual(t, told, deadTTL/3+deadTTL/20, "%v", by)
	}
}
