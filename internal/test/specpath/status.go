package specpath

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock/store"
)

const (
	broken = "the specification says so" // the reason of every break
	owner  = "specpath"                  // of every claim
)

// differs says what of a status is not as the state has it, or nothing.
func (w *walker) differs(got store.Status, want *State) string {
	alive := false
	there := 0
	for i, h := range want.Holders {
		at := slices.IndexFunc(got.Holders, func(g store.Holder) bool { return g.ID == w.ids[i].ID })
		switch {
		case !h.There && at < 0:
			continue
		case !h.There:
			return fmt.Sprintf("id %d holds the key", i+1)
		case at < 0:
			return fmt.Sprintf("id %d is not in the record", i+1)
		}
		there++
		alive = alive || h.Left > 0
		g := got.Holders[at]
		if left := ticks(g.ExpireAt.Sub(got.Now)); left != h.Left {
			return fmt.Sprintf("id %d has %d ticks left (%v), not %d", i+1, left, g.ExpireAt.Sub(got.Now), h.Left)
		}
		if (g.Broken == broken) != h.Broken || !h.Broken && g.Broken != "" {
			return fmt.Sprintf("id %d is broken because %q, and should be: %v", i+1, g.Broken, h.Broken)
		}
		if max(1, g.Weight) != h.Weight {
			return fmt.Sprintf("id %d has %d permits, not %d", i+1, g.Weight, h.Weight)
		}
		if got.Live(g) != (h.Left > 0) {
			return fmt.Sprintf("id %d counts as alive: %v (end %v, known by %v)", i+1, got.Live(g), g.ExpireAt.Sub(got.Now), g.KnownBy.Sub(got.Now))
		}
	}
	if there != len(got.Holders) {
		return fmt.Sprintf("%d holders, not %d", len(got.Holders), there)
	}
	if m, limit := mode(want.Mode); there > 0 && (got.Mode != m || got.Limit != limit) {
		return fmt.Sprintf("mode %q with limit %d, not %q with %d", got.Mode, got.Limit, m, limit)
	}
	if got.Free() == alive {
		return fmt.Sprintf("free: %v", got.Free())
	}
	if got.Set != want.Set {
		return fmt.Sprintf("the number of permits is %d, not %d", got.Set, want.Set)
	}
	return w.lineDiffers(got, want)
}

func (w *walker) lineDiffers(got store.Status, want *State) string {
	if len(got.Line) != len(want.Line) {
		return fmt.Sprintf("%d in line, not %d", len(got.Line), len(want.Line))
	}
	for i, p := range want.Line {
		switch g := got.Line[i]; {
		case g.Place != w.places[p.Number]:
			return fmt.Sprintf("place %d is not at %d in line", p.Number, i+1)
		case got.Stale(g) == p.Fresh:
			return fmt.Sprintf("place %d is stale: %v, seen %v ago", p.Number, got.Stale(g), got.Now.Sub(g.Seen))
		case g.Owner != owner:
			return fmt.Sprintf("place %d is of %q", p.Number, g.Owner)
		}
	}
	return ""
}

// ticks is a time as the specification counts it. A walk on a server takes some time
// itself, and what a store writes may end a little later than it must.
func ticks(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return int((d + Tick - Tick/100) / Tick)
}

func shown(s store.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "mode %q, limit %d, %d set", s.Mode, s.Limit, s.Set)
	for _, h := range s.Holders {
		fmt.Fprintf(&b, ", a holder with %v left", h.ExpireAt.Sub(s.Now))
		if h.Broken != "" {
			b.WriteString(", broken")
		}
	}
	for _, w := range s.Line {
		fmt.Fprintf(&b, ", %s waits, seen %v ago", w.Place, s.Now.Sub(w.Seen))
	}
	return b.String()
}
