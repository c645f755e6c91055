package line

import (
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// These limit what one process may keep for itself while others are in line.
const (
	streakMost = 16                     // handoffs in a row
	streakTime = 100 * time.Millisecond // the time that they may take
)

// A Streak counts how often a process kept a key for its own waiters in a row while others were in
// line.
type Streak struct {
	count int
	since monotonic.Moment
}

// On returns the streak with one handoff more, or false if that is too many.
func (s Streak) On(now monotonic.Moment) (Streak, bool) {
	if s.count == 0 {
		s.since = now
	}
	s.count++
	return s, s.count <= streakMost && now.Sub(s.since) <= streakTime
}
