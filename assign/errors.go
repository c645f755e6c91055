package assign

import (
	"errors"
	"fmt"
)

var (
	// ErrSize is returned by Run if the workers that are there have another number of partitions.
	// The error is a *SizeError. Start all processes with one number; [Resize] changes that of the
	// processes that run.
	ErrSize = errors.New("assign: another number of partitions")

	// ErrRunning is returned by Run if it runs already for that name on that client. A process
	// that should have more than others has a greater Weight.
	ErrRunning = errors.New("assign: runs already in this process")

	// ErrHung is returned by Run if the function, or that of Prepare, did not return within Grace after
	// its context's end. Its partition was given up, and all others were handed over: end the process,
	// as the function goes on in it.
	ErrHung = errors.New("assign: a function did not return")

	// ErrUnprepared is returned by Run if Prepare failed ten times in a row for a partition before it
	// succeeded for any.
	ErrUnprepared = errors.New("assign: no partition could be prepared")

	// ErrMoved is the cause of the work's context if its partition goes to another worker.
	ErrMoved = errors.New("assign: the partition goes to another worker")

	// ErrStopped is the cause of the work's context if its worker ends, or has lost its seat.
	ErrStopped = errors.New("assign: the worker stops")

	// ErrResized is the cause of the work's context if the number of partitions changes.
	ErrResized = errors.New("assign: the number of partitions changes")
)

// A SizeError refuses a worker because others have another number of partitions. It matches ErrSize.
type SizeError struct {
	Name        string
	Here, There int // the number of this worker, and that of the others
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("assign: %q has %d partitions in the processes that run, or died less than a TTL ago, and %d in this one: "+
		"start all with one number, and change it with Resize", e.Name, e.There, e.Here)
}

// Is makes a SizeError match ErrSize.
func (e *SizeError) Is(target error) bool { return target == ErrSize }
