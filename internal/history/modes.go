package history

import "fmt"

// compatible reports whether two holders may hold a key at once: readers, and those
// who agree on the number of permits, of which there are never more; see permits.
func compatible(a, b *lease) bool { return a.shared && b.shared && a.limit == b.limit }

// permits: never more holders than there are permits.
func permits(h *History) (found []Violation) {
	for _, list := range h.byKey() {
		for _, l := range list {
			if l.limit == 0 {
				continue
			}
			holders := 0
			for _, o := range list {
				if o.limit > 0 && o.granted <= l.granted && o.ends() > l.granted {
					holders++
				}
			}
			if holders > l.limit {
				found = append(found, Violation{"permits", l.granted, fmt.Sprintf("%d hold one of %d permits of %q", holders, l.limit, l.key)})
			}
		}
	}
	return found
}

// words: nobody comes in to share a key while the word of a writer keeps it.
func words(h *History) (found []Violation) {
	for _, e := range h.Events {
		if e.Kind == Overtook {
			found = append(found, Violation{"words", e.At, fmt.Sprintf("client %d comes into %q past a writer's word", e.Client, e.Key)})
		}
	}
	return found
}
