//go:build knobs

package simulation

import (
	"time"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/knob"
)

// suspend makes the next clock of a store stand still now and then, as a monotonic clock
// does while its machine is suspended.
func (w *world) suspend(p *process) {
	for _, s := range w.plan.suspensions {
		if s.client == p.id {
			w.after(s.at, func() {
				w.fault("clock stood still")
				w.logf("client %d's clock stands still for %v", p.id, s.long)
				w.noteLocked(history.Event{Kind: history.Trouble, Client: p.id, Until: w.since() + s.long + 10*time.Second, Note: history.Stopped})
			})
		}
	}
	knob.Sleeper = func() func() time.Duration {
		return func() time.Duration { return w.asleep(p.id, w.since()) }
	}
}

// asleep is for how long a client's clock has stood still by then.
func (w *world) asleep(client int, then time.Duration) (slept time.Duration) {
	for _, s := range w.plan.suspensions {
		if s.client == client {
			slept += min(max(then-s.at, 0), s.long)
		}
	}
	return slept
}

// late makes timers late by a part of the margin, for some seeds, and returns by how much.
func (w *world) late(s Settings) time.Duration {
	if s.Late == 0 && !w.plan.noFaults && s.Margin < 0 {
		s.Late = oneOf(w.rng("late"), 0, 0, w.plan.margin/4)
	}
	knob.LateTimer = s.Late
	return s.Late
}
