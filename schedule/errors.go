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

	// ErrUnknown is returned by RunNow, Pause, Resume and Forget for a job that the database does not know.
	// No process has had it on its schedule, or it was forgotten.
	ErrUnknown = errors.New("schedule: no such job is known")

	// ErrPlan is returned by Run, at its start, for a job whose plan in the database cannot be read here. A newer version
	// has written it, it is of the caller's own type, or this host lacks its time zone; and some of its due times are not
	// decided. Other processes go on with the job. A Run that meets such a plan later leaves the job to them, and tells it
	// by an Event (Faulted) and a line of the log. If no process can read the plan any more, Forget the job.
	ErrPlan = errors.New("schedule: the plan cannot be read here")

	errGoexit = errors.New("schedule: the job ended its goroutine (runtime.Goexit)")
)

// A valueError is a value that a function panicked with and that is not an error.
type valueError struct{ value any }

func (p *valueError) Error() string { return fmt.Sprint(p.value) }
