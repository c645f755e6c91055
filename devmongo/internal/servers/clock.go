package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// envFaketime names libfaketimeMT.so.1 where it is not in one of its usual places.
const envFaketime = "FAKETIME_LIB"

// A clock is the wall clock of one server: the machine's, and some time more. libfaketime, which is loaded
// into the server, adds what a file says; the monotonic clock stays the machine's. Under a clock that is behind,
// timed waits of MongoDB 8.0 return too soon, which takes the processor's time.
type clock struct {
	library string
	file    string        // empty until keepIn
	off     time.Duration // at first
}

// findFaketime returns the path of libfaketime.
func findFaketime() (string, error) {
	if named := os.Getenv(envFaketime); named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", fmt.Errorf("libfaketime, by %s: %w", envFaketime, err)
		}
		return named, nil
	}
	for _, place := range faketimePlaces {
		if found, err := filepath.Glob(place); err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", errNoFaketime
}

var (
	faketimePlaces = []string{
		"/usr/lib/*/faketime/libfaketimeMT.so.1",
		"/usr/lib/faketime/libfaketimeMT.so.1",
		"/usr/lib64/faketime/libfaketimeMT.so.1",
		"/usr/local/lib/faketime/libfaketimeMT.so.1",
	}
	errNoFaketime = fmt.Errorf("a clock cannot be set apart: libfaketimeMT.so.1 is not installed (Debian and Ubuntu: faketime; %s names it elsewhere): %w",
		envFaketime, errors.ErrUnsupported)
	errNoClock = fmt.Errorf("the server was started with the machine's clock; ask for clocks of their own when it starts: %w", errors.ErrUnsupported)
)

// keepIn makes the file in dir.
func (c *clock) keepIn(dir string) error {
	c.file = filepath.Join(dir, "clock")
	return c.set(c.off)
}

// set sets how far the clock is ahead. The server knows it a second later.
func (c *clock) set(off time.Duration) error {
	if c == nil {
		return errNoClock
	}
	// Written beside and renamed: a server that reads half of it would have another time.
	next := c.file + ".next"
	text := fmt.Sprintf("%+.3f\n", off.Seconds())
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.file)
}

// environ has libfaketime loaded into a program.
func (c *clock) environ() []string {
	if c == nil {
		return nil
	}
	return faketimeEnviron(c.library, c.file)
}

func faketimeEnviron(library, file string) []string {
	return []string{
		"LD_PRELOAD=" + library,
		"FAKETIME_TIMESTAMP_FILE=" + file,
		"FAKETIME_CACHE_DURATION=1",      // seconds after which the file is read again
		"FAKETIME_DONT_FAKE_MONOTONIC=1", // and by its older name:
		"DONT_FAKE_MONOTONIC=1",
		"FAKETIME_FORCE_MONOTONIC_FIX=0", // or all timed waits of MongoDB 8.0 do so
	}
}
