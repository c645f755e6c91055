package main

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestATableReplacesTheOneBetweenTheMarkers(t *testing.T) {
	page := "head\n" + tableBegins + "old\n" + tableEnds + "tail\n"
	got, err := between([]byte(page), markdown([]figure{
		{"slow", 2, "%.1f ×", 1, atMost, "fast"},
		{"fast", 8, "%.0f", 6, atLeast, "slow"},
		{"plain", 3, "%.0f", 0, noTarget, "counted"},
	}, "a machine"))
	require.NoError(t, err)
	const want = "head\n" + tableBegins + `
| figure | measured | target | against |
|---|---:|---:|---|
| slow | 2.0 × | ≤ 1.0 ×, **missed** | fast |
| fast | 8 | ≥ 6 | slow |
| plain | 3 |  | counted |

a machine

` + tableEnds + "tail\n"
	assert.Equal(t, want, string(got))
}

func TestThePageHasTheMarkers(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, err = between(text, nil)
	assert.NoError(t, err)
}

func TestAPageWithoutMarkersIsAnError(t *testing.T) {
	_, err := between([]byte("a page\n"), nil)
	assert.ErrorContains(t, err, "markers")
}

func TestSeveralRoundsBecomeTheirMedianAndRange(t *testing.T) {
	of := func(ratio, count float64) []figure {
		return []figure{{"ratio", ratio, "%.2f ×", 1, atMost, "by hand"}, {"count", count, "%.0f", 0, noTarget, "counted"}}
	}
	got := together([][]figure{of(1.5, 7), of(0.9, 7), of(1.004, 7)})
	want := []figure{
		{"ratio", 1.004, "%.2f ×", 1, atMost, "by hand; 3 rounds: 0.90 × to 1.50 ×"},
		{"count", 7, "%.0f", 0, noTarget, "counted"}, // the same each time
	}
	assert.Equal(t, want, got)
	assert.Equal(t, "missed", got[0].verdict(), "the median is over the target, though the rounding hides it")
	assert.Equal(t, of(1, 2), together([][]figure{of(1, 2)}), "one round")
	assert.Empty(t, together(nil), "no round")
}

func TestTheMedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		assert.InDelta(t, c.want, median(c.of), 0, "median of %v", c.of)
	}
}

func TestARaceTakesAllTurnsOfEachButTheFirst(t *testing.T) {
	made := make([]int, 2)
	by := func(i int) contestant { return func() float64 { made[i]++; return float64(i) } }
	r := raceOf(2, 3, by(0), by(1))
	assert.Equal(t, []int{5, 5}, made)
	assert.Equal(t, race{{0, 0, 0}, {1, 1, 1}}, r)
}

func TestAPartThatFailsIsAnErrorThatNamesIt(t *testing.T) {
	var err error
	func() {
		defer caught("a part", &err)
		sideBySide(2, func(i int) { check(map[int]error{1: errors.New("no")}[i]) })
	}()
	assert.ErrorContains(t, err, "a part: one of several: no")
}
