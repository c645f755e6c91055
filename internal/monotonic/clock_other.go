//go:build !linux && !darwin

package monotonic

import "time"

// total measures nothing: on Windows the monotonic clock itself counts sleep, and on other
// systems it is not known.
func total() func() time.Duration { return nil }
