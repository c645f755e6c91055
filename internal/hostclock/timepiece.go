package hostclock

import "time"

// acrossBoots is how far the wall clock may be off, from one start of the host to the next, without
// ending a lock early.
const acrossBoots = time.Minute

// A Stamp is what a file says of its own time.
type Stamp struct {
	At   time.Time `json:"at"`   // when it was written, by that time
	Boot string    `json:"boot"` // the start of the host from which its time counts
	Zero time.Time `json:"zero"` // the date of that start
}

// A Timepiece tells the time of a file: the date that the wall clock showed when the file was made, plus
// the time that the host's clock has counted since. Nothing can set that clock.
type Timepiece struct {
	Host Clock
	Wall func() time.Time
}

// Tell returns the present by a file's time. If the file was written under another boot, moved says so,
// and the caller has to move its dates: ago is how long ago the file was written, by the wall clock, which
// may have been set since. Unless the file is then written, the next call says the same.
func (t Timepiece) Tell(s *Stamp) (now time.Time, ago time.Duration, moved bool) {
	boot, up, wall := t.Host.Boot(), t.Host.Now(), t.Wall().Round(0).UTC()
	made := !s.At.IsZero() // otherwise there is no file
	if made && s.Boot == boot {
		if now := s.Zero.Add(up); !now.Before(s.At) {
			return now, 0, false
		}
	}
	s.Boot, s.Zero = boot, wall.Add(-up)
	if made {
		ago, s.At = wall.Sub(s.At), wall
	}
	return wall, ago, made
}

// MovedBy returns by how much the end of a lock is moved in a file that was written so long ago under
// another boot. It keeps the time that it had left, up to a minute beyond its date. moved is how much of that
// minute it has used; until its next renewal it gets no more: processes that cannot agree on the name of the
// boot each move what the other wrote.
func MovedBy(ago time.Duration, moved *time.Duration) time.Duration {
	by := min(ago, acrossBoots-*moved)
	*moved += max(0, by)
	return by
}
