package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// keptIdle checks that, without faults, a client does not go on keeping a key for itself, while
// no caller uses it, when a caller of another client waits.
func keptIdle(h *History) (found []Violation) {
	if !h.NoFaults || h.IdleLimit == 0 {
		return nil
	}
	uses := map[string][]*lease{} // of each holder that lingers, by its ID
	for _, l := range h.leases() {
		if id := holderOf(l.id); l.granted != never && (id != l.id || l.lingers) {
			uses[id] = append(uses[id], l)
		}
	}
	answers := h.answers()
	for _, list := range uses {
		slices.SortFunc(list, func(a, b *lease) int { return cmp.Compare(a.granted, b.granted) })
		for i, l := range list {
			idle := list[0].leaves()
			if i+1 < len(list) {
				idle = min(idle, list[i+1].granted)
			}
			if l.note != Released {
				continue
			}
			for _, e := range h.Events { // its own client asks for it, or does already: it is idle no more
				if e.Kind == Called && e.Key == l.key && e.Client == l.client && (e.At >= l.letGo || answers[e.Op] >= l.letGo) {
					idle = min(idle, max(e.At, l.letGo))
				}
			}
			for _, e := range h.Events {
				if e.Kind != Called || e.Until == 0 || e.Key != l.key || e.Client == l.client {
					continue
				}
				if long := min(idle, answers[e.Op]) - max(l.letGo, e.At); long > h.IdleLimit {
					found = append(found, Violation{"kept idle", max(l.letGo, e.At) + h.IdleLimit, fmt.Sprintf("client %d keeps %q idle for %v while client %d waits", l.client, l.key, long.Round(time.Millisecond), e.Client)})
				}
			}
		}
	}
	return found
}
