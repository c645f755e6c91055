package mongolock

import (
	"fmt"

	"github.com/mongolock/mongolock/store"
)

// Priority makes the caller wait before those of a lower priority, from 0, as without this option, to
// 9. Who has the key keeps it: see Wanted and Yielding. A steady stream of callers keeps all lower
// ones out. The calls of one client stand in one queue, in their order, and it stands in line with the
// priority of the first. A full line, of 64 clients, takes none of any priority. What does not wait, as
// TryAcquire, has no use for a priority.
func Priority(n int) AcquireOption {
	return acquireOption(func(t *terms) error {
		if t.priority = n; n < 0 || n > store.PriorityMost {
			return fmt.Errorf("mongolock: Priority(%d): must be between 0 and %d", n, store.PriorityMost)
		}
		return nil
	})
}
