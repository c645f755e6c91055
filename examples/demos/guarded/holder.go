//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/examples/demos/internal/stage"
	"github.com/mongolock/mongolock/fence"
)

// A holder is a process that writes reports under the lock. The exported fields are A's
// order.
type holder struct {
	stage.Place
	Name  string
	Began time.Time

	locks   *mongolock.Client
	reports *mongo.Collection
}

func (h *holder) connect() (leave func(), err error) {
	quiet := slog.New(slog.DiscardHandler) // the output shows the lost lease
	locks, db, leave, err := h.Locks(h.Name, mongolock.TTL(ttl), mongolock.WithLogger(quiet))
	if err != nil {
		return nil, err
	}
	h.locks, h.reports = locks, db.Collection("reports")
	return leave, nil
}

// writeTooLate is what A does.
func (h *holder) writeTooLate(ctx context.Context) error {
	leave, err := h.connect()
	if err != nil {
		return err
	}
	defer leave()
	lease, err := h.locks.Acquire(ctx, key)
	if err != nil {
		return err
	}
	defer lease.Release()
	h.say("has the lock, with token %d, and has counted 41 orders", lease.Token())
	if err := lease.Err(); err != nil {
		return err
	}
	h.say("checks its lease before it writes that: valid for another %.1f s", lease.Remaining().Seconds())

	h.say("is stopped, right here")
	if err := stopHere(); err != nil {
		return err
	}

	// The next step is the write. It does not use the lease's context, which has ended
	// by now. But a context, too, is checked before a command is sent, and a process can
	// be stopped after every check.
	h.say("goes on where it was, and writes that")
	h.write(ctx, lease.Token(), 41)
	h.say("checks its lease again: %v", lease.Err())
	return nil
}

// stopHere stops this process until it gets SIGCONT.
func stopHere() error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-time.After(ttl / 10) // the signal takes a moment to reach every thread
	return nil
}

// awaitStop waits until the child is stopped.
func awaitStop(child *os.Process) error {
	for {
		var state syscall.WaitStatus
		_, err := syscall.Wait4(child.Pid, &state, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case !state.Stopped():
			return errors.New("the holder ended before it was stopped")
		default:
			return nil
		}
	}
}

// write stores a report in both documents.
func (h *holder) write(ctx context.Context, token int64, orders int) {
	change := bson.M{"$set": bson.M{"orders": orders, "by": h.Name}}

	_, err := h.reports.UpdateByID(ctx, "unfenced", change)
	h.say("    unfenced document: %s", outcome(err))

	_, err = fence.UpdateByID(ctx, h.reports, token, "fenced", change)
	h.say("    fenced document:   %s", outcome(err))
}

func outcome(err error) string {
	switch {
	case errors.Is(err, fence.ErrFenced):
		return fmt.Sprintf("refused (%v)", err)
	case err != nil:
		return err.Error()
	}
	return "written"
}

func (h *holder) say(format string, args ...any) {
	fmt.Printf("%5d ms  %s  %s\n", time.Since(h.Began).Milliseconds(), h.Name, fmt.Sprintf(format, args...))
}
