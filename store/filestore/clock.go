package filestore

import (
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
)

// acrossBoots is how far the wall clock may be off, from one start of the host to the next,
// without ending a holder early.
const acrossBoots = time.Minute

// A timepiece tells the time of a record: the date that the wall clock showed when the record
// was made, plus the time that the host's clock has counted since. Nothing can set that clock.
type timepiece struct {
	host hostclock.Clock
	wall func() time.Time
}

// tell sets the present by a record's time. If the record was written under another boot it moves its
// dates to this one; unless the record is then written, the next call moves them again.
func (t timepiece) tell(f *file) {
	boot, up, wall := t.host.Boot(), t.host.Now(), t.wall().Round(0).UTC()
	made := !f.At.IsZero() // otherwise the key has no file
	if made && f.Boot == boot {
		if f.now = f.Zero.Add(up); !f.now.Before(f.At) {
			return
		}
	}
	f.Boot, f.Zero, f.now = boot, wall.Add(-up), wall
	if made {
		f.move()
	}
}

// move moves the dates of a record that was written under another boot. Only the wall clock
// tells how long ago that was, and it may have been set since. So a holder keeps the time that
// it had left, up to a minute beyond its date. It gets no more than that minute until it is
// renewed: processes that cannot agree on the name of the boot each move what the other wrote.
func (f *file) move() {
	ago := f.now.Sub(f.At)
	for i := range f.Holders {
		h := &f.Holders[i]
		by := min(ago, acrossBoots-h.Moved)
		h.Since, h.ExpireAt, h.Moved = h.Since.Add(by), h.ExpireAt.Add(by), h.Moved+max(0, by)
	}
	for i := range f.Line { // no place has to outlive the host; none must stay for ever
		w := &f.Line[i]
		by := min(ago, 0)
		w.Since, w.Seen = w.Since.Add(by), w.Seen.Add(by)
	}
	if !f.Freed.IsZero() {
		f.Freed = f.Freed.Add(min(ago, 0))
	}
	f.At = f.now
}
