package history

import "fmt"

// A Mode is how a key is taken. The zero Mode is exclusive.
type Mode struct {
	Shared bool `json:"shared,omitempty"` // as a reader, or with a permit
	Limit  int  `json:"limit,omitempty"`  // of permits; 0: none are used
}

// compatible reports whether holders of two modes may hold a key at once: readers, or
// owners of permits with the same limit. How many permits there may be, permits checks.
func compatible(a, b Mode) bool { return a.Shared && b.Shared && a.Limit == b.Limit }

// permits checks that a key never has more holders than permits.
func permits(h *History) (found []Violation) {
	for _, list := range h.byKey() {
		for _, l := range list {
			if l.mode.Limit == 0 {
				continue
			}
			holders := 0
			for _, o := range list {
				if o.mode.Limit > 0 && o.granted <= l.granted && o.ends() > l.granted {
					holders++
				}
			}
			if holders > l.mode.Limit {
				found = append(found, Violation{"permits", l.granted, fmt.Sprintf("%d clients hold one of the %d permits of %q", holders, l.mode.Limit, l.key)})
			}
		}
	}
	return found
}
