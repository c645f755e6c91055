//go:build knobs

package simulation

import (
	"time"

	"github.com/mongolock/mongolock/internal/history"
	"github.com/mongolock/mongolock/internal/knob"
)

// nap lets the next clock that a store makes stand still for a while now and
// then, as a monotonic clock does while its machine is suspended.
func (w *world) nap(p *process) {
	var naps []nap
	for _, n := range w.weather.naps {
		if n.client == p.id {
			naps = append(naps, n)
			w.after(n.at, func() {
				w.fault("clock stood still")
				w.logf("client %d's clock stands still for %v", p.id, n.long)
				w.noteLocked(history.Event{Kind: history.Trouble, Client: p.id, Until: w.since() + n.long + 10*time.Second, Note: history.Stopped})
			})
		}
	}
	knob.Sleeper = func() func() time.Duration {
		return func() (slept time.Duration) {
			for _, n := range naps {
				slept += min(max(w.since()-n.at, 0), n.long)
			}
			return slept
		}
	}
}

// late makes timers late by a part of the margin, in some seeds.
func (w *world) late(s Settings) time.Duration {
	if s.Late == 0 && !w.weather.calm && s.Margin < 0 {
		s.Late = oneOf(w.dice("late"), 0, 0, w.weather.margin/4)
	}
	knob.LateTimer = s.Late
	return s.Late
}
