package hostclock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func system() (Clock, error) {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return Clock{}, fmt.Errorf("the name of this boot: kern.bootsessionuuid: %w", err)
	}
	read := func() (time.Duration, error) {
		var t unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &t)
		return time.Duration(t.Nano()), err
	}
	if _, err := read(); err != nil {
		return Clock{}, fmt.Errorf("CLOCK_MONOTONIC_RAW: %w", err)
	}
	return Clock{boot, func() time.Duration {
		now, _ := read() // it has answered before
		return now
	}}, nil
}
