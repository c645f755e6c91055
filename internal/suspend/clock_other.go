//go:build !linux && !darwin

package suspend

import "time"

// total measures nothing: on Windows the monotonic clock itself counts sleep, and on other
// systems it is not known.
func total() func() time.Duration { return nil }
