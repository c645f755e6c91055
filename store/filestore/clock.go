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

// now returns the present by a record's time. It reports whether it moved the record's dates to
// the time of this boot. Such a record must be written, or the next call moves them again.
func (t timepiece) now(rec *record) (now time.Time, moved bool) {
	boot, up, wall := t.host.Boot(), t.host.Now(), t.wall().Round(0).UTC()
	made := !rec.At.IsZero() // otherwise the key has no file
	if made && rec.Boot == boot {
		if now := rec.Zero.Add(up); !now.Before(rec.At) {
			return now, false
		}
	}
	rec.Boot, rec.Zero = boot, wall.Add(-up)
	if made {
		rec.move(wall)
	}
	return wall, made
}

// move moves the dates of a record that was written under another boot. Only the wall clock
// tells how long ago that was, and it may have been set since. So a holder keeps the time that
// it had left, up to a minute beyond its date. It gets no more than that minute until it is
// renewed: processes that cannot agree on the name of the boot each move what the other wrote.
func (r *record) move(now time.Time) {
	ago := now.Sub(r.At)
	for i := range r.Holders {
		h := &r.Holders[i]
		by := min(ago, acrossBoots-h.Moved)
		h.Since, h.ExpireAt, h.Moved = h.Since.Add(by), h.ExpireAt.Add(by), h.Moved+max(0, by)
	}
	for i := range r.Line { // no place has to outlive the host; none must stay for ever
		w := &r.Line[i]
		by := min(ago, 0)
		w.Since, w.Seen = w.Since.Add(by), w.Seen.Add(by)
	}
	if !r.Freed.IsZero() {
		r.Freed = r.Freed.Add(min(ago, 0))
	}
	r.At = now
}
