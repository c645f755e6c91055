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

// permits reports whether it is of permits.
func (m Mode) permits() bool { return m.Limit > 0 }

// compatible reports whether holders of two modes may hold a key at once: readers, or
// owners of permits. How many permits there may be, permits checks.
func compatible(a, b Mode) bool { return a.Shared && b.Shared && a.permits() == b.permits() }

// permits checks that a grant leaves no more permits taken than its own claim allows. Where only
// users tell of grants, it is not known which of two came first: then no more may be taken than some
// holder's claim allows, and linearizability tells the rest.
func permits(h *History) (found []Violation) {
	for _, list := range h.byKey() {
		for _, l := range list {
			if !l.mode.permits() {
				continue
			}
			taken, most := 0, l.mode.Limit
			for _, o := range list {
				if o.mode.permits() && o.starts() <= l.starts() && o.ends() > l.granted {
					taken += o.mode.takes()
					if l.applied == never {
						most = max(most, o.mode.Limit)
					}
				}
			}
			if taken > most {
				found = append(found, Violation{"permits", l.granted, fmt.Sprintf("%d permits of %q are taken with one that was granted where %d may be", taken, l.key, most)})
			}
		}
	}
	return found
}
