package schedule

import (
	"errors"
	"fmt"
)

var (
	// ErrDuplicate: Add of a name that the Scheduler has already.
	ErrDuplicate = errors.New("schedule: two jobs of one name")

	// ErrRunning: Run of a Scheduler that is running.
	ErrRunning = errors.New("schedule: is running already")

	errGoexit = errors.New("schedule: the job ended its goroutine (runtime.Goexit)")
)

// valueError is what a function panicked with, if that is no error.
type valueError struct{ value any }

func (p *valueError) Error() string { return fmt.Sprint(p.value) }
