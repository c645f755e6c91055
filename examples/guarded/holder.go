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
	"github.com/mongolock/mongolock/examples/internal/stage"
	"github.com/mongolock/mongolock/fence"
)

// A holder is a process that writes reports under the lock. A is told the exported
// fields when it is started.
type holder struct {
	Name, URI, Database string
	Began               time.Time

	locks   *mongolock.Client
	reports *mongo.Collection
}

func (h *holder) connect() (leave func(), err error) {
	db, err := stage.Connect(h.URI, h.Database)
	if err != nil {
		return nil, err
	}
	h.reports = db.Collection("reports")
	h.locks, err = mongolock.New(db.Collection("locks"), mongolock.WithOwner(h.Name), mongolock.TTL(ttl),
		mongolock.WithoutIndex(),                            // in a database that is dropped in a minute
		mongolock.WithLogger(slog.New(slog.DiscardHandler))) // the story tells of the lost lease
	if err != nil {
		return nil, err
	}
	return func() {
		h.locks.Close()
		db.Client().Disconnect(context.Background())
	}, nil
}

// comeTooLate is what A does.
func (h *holder) comeTooLate(ctx context.Context) error {
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
	h.say("checks its lease before it writes that: good for another %.1f s", lease.Remaining().Seconds())

	h.say("is stopped, right here")
	if err := stopHere(); err != nil {
		return err
	}

	// The next thing to do was to write. The context is not the lease's, which would
	// be over by now. But a context too is looked at before a command leaves, and
	// after every look a process can be stopped.
	h.say("goes on where it was, and writes that")
	h.write(ctx, lease.Token(), 41)
	h.say("checks its lease again: %v", lease.Err())
	return nil
}

// stopHere stops this process until it is sent SIGCONT.
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
