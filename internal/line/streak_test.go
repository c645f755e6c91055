package line_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
)

// streak returns how many handoffs in a row are allowed, one every so often.
func streak(every time.Duration) (n int) {
	now := monotonic.Moment(time.Hour)
	var s line.Streak
	for ; n < 100; n++ {
		next, on := s.On(now)
		if !on {
			break
		}
		s, now = next, now.Add(every)
	}
	return n
}

func TestAStreakEndsAfterSixteenHandoffsOrATenthOfASecond(t *testing.T) {
	for every, want := range map[time.Duration]int{0: 16, 6 * time.Millisecond: 16, 10 * time.Millisecond: 11, 100 * time.Millisecond: 2, time.Second: 1} {
		assert.Equal(t, want, streak(every), every)
	}
}
