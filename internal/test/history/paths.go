package history

import (
	"fmt"
	"strings"
	"time"
)

// A PathHold is a lock of a path, as package pathlock has them, that was certainly held.
type PathHold struct {
	Client   int
	Path     string // in its clean form
	Shared   bool
	Infinity bool // its depth
	From, To time.Duration
}

func (h PathHold) String() string {
	mode, depth := "exclusive", "0"
	if h.Shared {
		mode = "shared"
	}
	if h.Infinity {
		depth = "infinity"
	}
	return fmt.Sprintf("client %d has %s %s %s", h.Client, h.Path, mode, depth)
}

// Conflicts reports whether two locks must not be held at once. It is the rule of package
// pathlock, said again.
func (h PathHold) Conflicts(o PathHold) bool {
	overlap := h.Path == o.Path || h.reaches(o) || o.reaches(h)
	return overlap && !(h.Shared && o.Shared)
}

func (h PathHold) reaches(o PathHold) bool {
	return h.Infinity && (h.Path == "/" || strings.HasPrefix(o.Path, h.Path+"/"))
}

// PathConflicts finds locks that conflict and were held at once for longer than tolerance.
// It counts the pairs that were held at once without.
func PathConflicts(holds []PathHold, tolerance time.Duration) (found []Violation, beside int) {
	for i, a := range holds {
		for _, b := range holds[i+1:] {
			together := min(a.To, b.To) - max(a.From, b.From)
			switch {
			case together <= tolerance:
			case a.Conflicts(b):
				found = append(found, Violation{Check: "path locks", At: max(a.From, b.From), Text: fmt.Sprintf("%v, and %v, together for %v", a, b, together)})
			default:
				beside++
			}
		}
	}
	return found, beside
}
