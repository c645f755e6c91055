package hostclock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func system() (Clock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Clock{}, fmt.Errorf("the name of this boot: %w", err)
	}
	offset, err := namespace()
	if err != nil {
		return Clock{}, fmt.Errorf("the time namespace: %w", err)
	}
	read := func() (time.Duration, error) {
		var t unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
		return time.Duration(t.Nano()) - offset, err
	}
	if _, err := read(); err != nil {
		return Clock{}, fmt.Errorf("CLOCK_BOOTTIME: %w", err)
	}
	return Clock{strings.TrimSpace(string(boot)), func() time.Duration {
		now, _ := read() // it has answered before
		return now
	}}, nil
}

// namespace is by how much the time namespace of this process sets the clock off from that of
// the host: containers may have namespaces of their own.
func namespace() (time.Duration, error) {
	const dir = "/proc/self/"
	own, err := os.Readlink(dir + "ns/time")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // a kernel without such namespaces
	}
	if err != nil {
		return 0, err
	}
	childrens, err := os.Readlink(dir + "ns/time_for_children")
	if err != nil {
		return 0, err
	}
	if own != childrens {
		return 0, fmt.Errorf("%s is not that of its children, %s, whose offsets alone are told", own, childrens)
	}
	text, err := os.ReadFile(dir + "timens_offsets")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var seconds, rest int64
		if n, _ := fmt.Sscanf(line, "boottime %d %d", &seconds, &rest); n == 2 {
			return time.Duration(seconds)*time.Second + time.Duration(rest), nil
		}
	}
	return 0, fmt.Errorf("no boottime in %q", text)
}
