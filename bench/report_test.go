package main

import (
	"slices"
	"strings"
	"testing"
)

func TestATableReplacesTheOneBetweenTheMarkers(t *testing.T) {
	page := "head\n" + tableBegins + "old\n" + tableEnds + "tail\n"
	got, err := between([]byte(page), markdown([]figure{
		{"slow", 2, "%.1f ×", 1, atMost, "fast"},
		{"fast", 8, "%.0f", 6, atLeast, "slow"},
		{"plain", 3, "%.0f", 0, noTarget, "counted"},
	}, "a machine"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "head\n" + tableBegins + `
| figure | measured | target | against |
|---|---:|---:|---|
| slow | 2.0 × | ≤ 1.0 ×, **missed** | fast |
| fast | 8 | ≥ 6 | slow |
| plain | 3 |  | counted |

a machine

` + tableEnds + "tail\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAPageWithoutMarkersIsLeftAlone(t *testing.T) {
	if _, err := between([]byte("a page\n"), nil); err == nil || !strings.Contains(err.Error(), "markers") {
		t.Errorf("answered %v", err)
	}
}

func TestRoundsAreToldByTheirMedianAndTheirRange(t *testing.T) {
	of := func(ratio, count float64) []figure {
		return []figure{{"ratio", ratio, "%.2f ×", 1, atMost, "by hand"}, {"count", count, "%.0f", 0, noTarget, "counted"}}
	}
	got := together([][]figure{of(1.5, 7), of(0.9, 7), of(1.004, 7)})
	want := []figure{
		{"ratio", 1.004, "%.2f ×", 1, atMost, "by hand; 3 rounds: 0.90 × to 1.50 ×"},
		{"count", 7, "%.0f", 0, noTarget, "counted"}, // the same each time
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got[0].verdict() != "missed" {
		t.Error("met, though the median is over the target, if not by as much as is shown")
	}
	if one := together([][]figure{of(1, 2)}); !slices.Equal(one, of(1, 2)) {
		t.Errorf("one round: %v", one)
	}
	if none := together(nil); len(none) != 0 {
		t.Errorf("none: %v", none)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.of, got, c.want)
		}
	}
}

func TestARaceIsToldByItsMedians(t *testing.T) {
	r := &race{took: [][]float64{{2, 4, 100}, {1, 4, 4}}}
	if got := r.ratio(1); got != 1 {
		t.Errorf("of the medians: %v", got)
	}
	if got := r.ratioByTurn(1); got != 2 {
		t.Errorf("by turn: %v", got)
	}
}
