package monotonic

import (
	"time"

	"golang.org/x/sys/unix"
)

// total relies on Go's monotonic clock being mach_absolute_time there, which is
// CLOCK_UPTIME_RAW.
func total() func() time.Duration {
	return answering(func() (time.Duration, error) {
		var t unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &t)
		return time.Duration(t.Nano()), err
	})
}
