package history

import "fmt"

// A Mode is how a key is taken. The zero Mode is exclusive.
type Mode struct {
	Shared bool `json:"shared,omitempty"` // as a reader, or with a permit
	Limit  int  `json:"limit,omitempty"`  // of permits; 0: none are used
	Weight int  `json:"weight,omitempty"` // how many permits it takes; 0: one
}

// takes is how many permits a holder in this mode has, and 1 in other modes.
func (m Mode) takes() int { return max(1, m.Weight) }

// compatible reports whether holders of two modes may hold a key at once: readers, or
// owners of permits with the same limit. How many permits there may be, permits checks.
func compatible(a, b Mode) bool { return a.Shared && b.Shared && a.Limit == b.Limit }

// permits checks that after a grant the holders of a key have no more permits than there may have
// been at some time since its command began. Holders from before a lower number was set may have
// more.
func permits(h *History) (found []Violation) {
	settings, attempts := h.settings(), h.attempts()
	for key, list := range h.byKey() {
		for _, l := range list {
			if l.mode.Limit == 0 {
				continue
			}
			taken := 0
			for _, o := range list {
				if o.mode.Limit > 0 && o.starts() <= l.starts() && o.ends() > l.granted {
					taken += o.mode.takes()
				}
			}
			if most := settings[key].most(attempts[l.id], l.granted, l.mode.Limit); taken > most {
				found = append(found, Violation{"permits", l.granted, fmt.Sprintf("%d of the %d permits of %q are taken", taken, most, l.key)})
			}
		}
	}
	return found
}
