package once

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrFailed matches every FailedError: another process ran the function while this call
	// waited, and it failed there. A new call runs it again.
	ErrFailed = errors.New("once: the run that this call waited for failed")

	// ErrChanged matches every ChangedError: the work is done, but with other content than this
	// call's. Give changed work a new name.
	ErrChanged = errors.New("once: done with other content")

	// ErrUnrecorded is returned by Do if the function has returned nil here, but the record
	// does not say so. It is joined to the reason, which is mongolock.ErrLost or
	// ErrOutcomeUnknown. The next call may run the function again.
	ErrUnrecorded = errors.New("once: the function has run, and that is not recorded")

	// ErrNotFound is returned by Reset for a name that was never run.
	ErrNotFound = errors.New("once: never run")

	errReturnedNot = errors.New("the function panicked, or ended its goroutine")
)

// A FailedError is the failure of a run in another process. It matches ErrFailed.
type FailedError struct {
	Name string
	Run  Entry
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%v: %q, run %d, by %s, after %v: %s", ErrFailed, e.Name, e.Run.Number, e.Run.Owner, e.Run.Took().Round(time.Millisecond), e.Run.Error)
}

// Is makes errors.Is(err, ErrFailed) true.
func (e *FailedError) Is(target error) bool { return target == ErrFailed }

// A ChangedError says that the work done under a name had other content than this call's. It
// matches ErrChanged.
type ChangedError struct {
	Name string
	Run  Entry  // the run that did it
	Sum  string // the checksum of this call's content
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%v: %q was done by run %d, by %s, with the checksum %s, not %s", ErrChanged, e.Name, e.Run.Number, e.Run.Owner, e.Run.Sum, e.Sum)
}

// Is makes errors.Is(err, ErrChanged) true.
func (e *ChangedError) Is(target error) bool { return target == ErrChanged }
