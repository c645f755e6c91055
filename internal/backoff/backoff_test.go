package backoff_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/backoff"
)

func TestPausesDoubleFromLeastToMost(t *testing.T) {
	b := backoff.New(50*time.Millisecond, time.Second)
	for round := range 3 {
		for i, ms := range []int64{50, 100, 200, 400, 800, 1000, 1000, 1000} {
			want := time.Duration(ms) * time.Millisecond
			assert.InDelta(t, want, b.Next(), float64(want)/5, "round %d, pause %d", round, i)
		}
		b.Reset()
	}
}

func TestJitterIsSpreadOverAFifthToBothSides(t *testing.T) {
	const d = time.Second
	least, most := d, d
	for range 10_000 {
		got := backoff.Jitter(d)
		least, most = min(least, got), max(most, got)
	}
	assert.GreaterOrEqual(t, least, d*80/100)
	assert.Less(t, least, d*81/100)
	assert.Less(t, most, d*120/100)
	assert.Greater(t, most, d*119/100)
	assert.Zero(t, backoff.Jitter(0))
	assert.InDelta(t, -d, backoff.Jitter(-d), float64(d)/5)
}

// A simulation is run again by the bytes it hands out.
func TestJitterDependsOnCryptoRandAlone(t *testing.T) {
	defer func(before io.Reader) { rand.Reader = before }(rand.Reader)
	draw := func(first byte) []time.Duration {
		all := make([]byte, 3*backoff.JitterSize)
		for i := range all {
			all[i] = first + byte(i)*37
		}
		source := bytes.NewReader(all)
		rand.Reader = source
		b := backoff.New(time.Second, time.Minute)
		pauses := []time.Duration{b.Next(), b.Next(), backoff.Jitter(time.Hour)}
		assert.Zero(t, source.Len(), "bytes left: a draw takes fewer than JitterSize")
		return pauses
	}
	once := draw(1)
	assert.Equal(t, once, draw(1))
	assert.NotEqual(t, once, draw(2), "control: other bytes make other pauses")
}

func TestSleepEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		assert.True(t, backoff.Sleep(t.Context(), time.Second))
		assert.Equal(t, time.Second, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.False(t, backoff.Sleep(ctx, time.Hour))
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.True(t, backoff.Sleep(t.Context(), 0))
		assert.False(t, backoff.Sleep(ctx, -time.Second))
	})
}
