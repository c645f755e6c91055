package pathlock

import (
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// acrossBoots is how far the wall clock may be off, from one start of the host to the next,
// without ending a lock early.
const acrossBoots = time.Minute

// A timepiece tells the time of a file: the date that the wall clock showed when the file was
// made, plus the time that the host's clock has counted since. (Package filestore does the same.)
type timepiece struct {
	host hostclock.Clock
	wall func() time.Time
}

// now returns the present by a file's time. It reports whether it moved the file's dates to the
// time of this boot. Such a file must be written, or the next call moves them again.
func (t timepiece) now(f *fileTree) (now time.Time, moved bool) {
	boot, up, wall := t.host.Boot(), t.host.Now(), t.wall().Round(0).UTC()
	made := !f.At.IsZero() // otherwise the tree has no file
	if made && f.Boot == boot {
		if now := f.Zero.Add(up); !server.Ceil(now).Before(f.At) {
			return now, false
		}
	}
	f.Boot, f.Zero = boot, wall.Add(-up)
	if made {
		f.move(wall)
	}
	return wall, made
}

// move moves the dates of a file that was written under another boot. Only the wall clock tells
// how long ago that was, and it may have been set since. So a lock keeps the time that it had left,
// up to a minute beyond its date. It gets no more than that minute until it is refreshed.
func (f *fileTree) move(now time.Time) {
	ago := now.Sub(f.At)
	for i := range f.Locks {
		l := &f.Locks[i]
		by := min(ago, acrossBoots-l.Moved)
		l.Since, l.Moved = server.Ceil(l.Since.Add(by)), l.Moved+max(0, by)
		if !l.ExpireAt.IsZero() {
			l.ExpireAt = server.Ceil(l.ExpireAt.Add(by))
		}
	}
	if !f.Watched.IsZero() {
		f.Watched = f.Watched.Add(min(ago, 0)) // moving a word is not worth more
	}
	f.At = now
}
