package filestore

import (
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
)

// tell sets the present by a record's time. If the record was written under another boot it moves its
// dates to this one.
func (s *Store) tell(f *file) {
	var ago time.Duration
	if f.now, ago, _ = s.clock.Tell(&f.Stamp); ago == 0 {
		return
	}
	for i := range f.Holders {
		h := &f.Holders[i]
		by := hostclock.MovedBy(ago, &h.Moved)
		h.Since, h.ExpireAt = h.Since.Add(by), h.ExpireAt.Add(by)
	}
	back := min(ago, 0)
	for i := range f.Line { // no place has to outlive the host; none must stay for ever
		w := &f.Line[i]
		w.Since, w.Seen = w.Since.Add(back), w.Seen.Add(back)
	}
	if !f.Freed.IsZero() {
		f.Freed = f.Freed.Add(back)
	}
}
