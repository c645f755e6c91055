//go:build unix

// Guarded shows what a lease alone cannot do, and what it takes. A process checks its
// lease, finds it valid, and is stopped (SIGSTOP) before the write that it was about to
// make. It goes on when another process has long had the lock, and writes nevertheless.
// No lock service can prevent that.
//
// The document can. It remembers the newest token that has written, and package fence
// makes a write with an older token fail.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/examples/demos/internal/stage"
)

const (
	key = "report"
	ttl = time.Second
)

// A report is written twice, to a document with a fence and to one without.
type report struct {
	ID     string `bson:"_id"`
	Orders int    `bson:"orders"`
	By     string `bson:"by"`
}

func main() {
	late := func(ctx context.Context, _ string, a holder) error { return a.writeTooLate(ctx) }
	stage.Example[holder]{Name: "guarded", Role: late, Story: story}.Main()
}

// story is what B does, the process that is in time. It starts A.
func story(ctx context.Context, scratch *stage.Scratch) error {
	ctx, cancel := context.WithTimeout(ctx, 14*time.Second)
	defer cancel()
	a := holder{Name: "A", Place: scratch.Place, Began: time.Now()}
	b := a
	b.Name = "B"
	leave, err := b.connect()
	if err != nil {
		return err
	}
	defer leave()
	if _, err := b.reports.InsertMany(ctx, []report{{ID: "unfenced"}, {ID: "fenced"}}); err != nil {
		return err
	}

	child, err := stage.Process(ctx, "A", a)
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	err = b.overtake(ctx, child.Process)
	if err != nil {
		cancel() // kills A
	}
	if err := errors.Join(err, child.Wait()); err != nil {
		return err
	}
	return b.check(ctx)
}

// overtake acquires the lock once A is stopped and its lease has expired, writes, and
// lets A go on.
func (h *holder) overtake(ctx context.Context, a *os.Process) error {
	if err := awaitStop(a); err != nil {
		return err
	}
	h.say("waits for the lock")
	lease, err := h.locks.Acquire(ctx, key)
	if err != nil {
		return err
	}
	defer lease.Release()
	h.say("has the lock, with token %d, has counted 42 orders, and writes that", lease.Token())
	h.write(ctx, lease.Token(), 42)
	h.say("sends A the signal to go on")
	return a.Signal(syscall.SIGCONT)
}

// check compares what is left of B's report.
func (h *holder) check(ctx context.Context) error {
	var unfenced, fenced report
	err := errors.Join(
		h.reports.FindOne(ctx, bson.M{"_id": "unfenced"}).Decode(&unfenced),
		h.reports.FindOne(ctx, bson.M{"_id": "fenced"}).Decode(&fenced),
	)
	if err != nil {
		return err
	}
	fmt.Println()
	fmt.Printf("The unfenced document says %d orders, by %s: the late write went through.\n", unfenced.Orders, unfenced.By)
	fmt.Printf("The fenced document says %d orders, by %s.\n", fenced.Orders, fenced.By)
	if unfenced.By != "A" || fenced.By != "B" {
		return errors.New("want the unfenced document by A and the fenced one by B")
	}
	return nil
}
