package monotonic

import (
	"time"

	"golang.org/x/sys/unix"
)

func total() func() time.Duration {
	return answering(func() (time.Duration, error) {
		var t unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
		return time.Duration(t.Nano()), err
	})
}
