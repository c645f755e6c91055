package schedule

import (
	"errors"
	"fmt"
)

var (
	// ErrDuplicate is returned by Add for a name that the Scheduler has already.
	ErrDuplicate = errors.New("schedule: two jobs of one name")

	// ErrRunning is returned by Run of a Scheduler that is running already.
	ErrRunning = errors.New("schedule: is running already")

	// ErrUnknown is returned by RunNow, Pause and Resume for a job that the database does not
	// know, because no process has had it on its schedule, or it was forgotten.
	ErrUnknown = errors.New("schedule: no such job is known")

	// ErrPlan is matched by the error of an Event (Faulted) for a plan in the database that cannot be read here. A newer
	// version has written it, or this host lacks its time zone. The job is left to other processes.
	ErrPlan = errors.New("schedule: the plan cannot be read here")

	errGoexit = errors.New("schedule: the job ended its goroutine (runtime.Goexit)")
)

// A valueError is a value that a function panicked with and that is not an error.
type valueError struct{ value any }

func (p *valueError) Error() string { return fmt.Sprint(p.value) }
