package mongolock

import "fmt"

// Priority makes the caller wait before those of a lower priority, from 0, as without this option, to
// 9. Who has the key keeps it: see Wanted and Yielding. A steady stream of callers keeps all lower
// ones out. The calls of one client stand in one queue, in their order, and it stands in line with the
// priority of the first. A refused TryAcquire does not wait.
func Priority(n int) AcquireOption {
	return acquireOption(func(t *terms) error {
		if t.priority = n; n < 0 || n > 9 {
			return fmt.Errorf("mongolock: Priority(%d): must be between 0 and 9", n)
		}
		return nil
	})
}
