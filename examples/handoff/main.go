// Handoff passes a lease from one process to another. The first process receives an
// upload, leaves a ticket (Detach) and exits; the key stays held though no process has
// the lease. Two others find the ticket and resume it (Resume): one of them succeeds, and
// continues under the token of the first.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/examples/internal/stage"
	"github.com/mongolock/mongolock/fence"
)

const (
	key = "upload-17"
	ttl = 10 * time.Second // for how long a ticket is valid
)

// An upload is what the processes work on. It carries the ticket: any process that may write
// to this database could take the lock anyway. Elsewhere protect a ticket like a
// password.
type upload struct {
	ID     string `bson:"_id"`
	Ticket string `bson:"ticket"`
	Steps  []step `bson:"steps"`
}

type step struct {
	What  string `bson:"what"`
	PID   int    `bson:"pid"`
	Token int64  `bson:"token"`
}

// A process has a name and a place, which are its order.
type process struct {
	stage.Place
	Name string

	locks   *mongolock.Client
	uploads *mongo.Collection
}

func main() { stage.Example[process]{Name: "handoff", Role: play, Story: story}.Main() }

// play is what the processes do that the story starts.
func play(ctx context.Context, role string, p process) error {
	leave, err := p.connect()
	if err != nil {
		return err
	}
	defer leave()
	if role == "receive" {
		return p.receive(ctx)
	}
	return p.finish(ctx)
}

func (p *process) connect() (leave func(), err error) {
	locks, db, leave, err := p.Locks(p.Name, mongolock.TTL(ttl))
	if err != nil {
		return nil, err
	}
	p.locks, p.uploads = locks, db.Collection("uploads")
	return leave, nil
}

// receive is what the first process does.
func (p *process) receive(ctx context.Context) error {
	lease, err := p.locks.Acquire(ctx, key, mongolock.Note("receiving"))
	if err != nil {
		return err
	}
	p.say("has the lock, with token %d, and receives the upload", lease.Token())
	if err := p.do(ctx, lease, "received"); err != nil {
		return errors.Join(err, lease.Release())
	}
	ticket, err := lease.Detach(ctx) // instead of Release
	if err != nil {
		return errors.Join(err, lease.Release())
	}
	_, err = p.uploads.UpdateByID(ctx, key, bson.M{"$set": bson.M{"ticket": ticket}})
	p.say("leaves a ticket, valid for %v, and exits", ttl)
	return err
}

// finish is what the other two do.
func (p *process) finish(ctx context.Context) error {
	var u upload
	if err := p.uploads.FindOne(ctx, bson.M{"_id": key}).Decode(&u); err != nil {
		return err
	}
	lease, err := p.locks.Resume(ctx, u.Ticket)
	if errors.Is(err, mongolock.ErrLost) {
		p.say("comes too late: the ticket was used, or has expired")
		return nil
	}
	if err != nil {
		return err // after ErrOutcomeUnknown the ticket may be tried again
	}
	defer lease.Release()
	p.say("has the lock, with token %d, and finishes the upload", lease.Token())
	return p.do(lease.Context(ctx), lease, "finished")
}

// do makes a step of the work, and records it under the lease's token.
func (p *process) do(ctx context.Context, lease *mongolock.Lease, what string) error {
	done := step{What: what, PID: os.Getpid(), Token: lease.Token()}
	_, err := fence.UpdateByID(ctx, p.uploads, lease.Token(), key, bson.M{"$push": bson.M{"steps": done}})
	return err
}

func (p *process) say(format string, args ...any) {
	fmt.Printf("%-10s  pid %d  %s\n", p.Name, os.Getpid(), fmt.Sprintf(format, args...))
}

// story starts the processes, and checks what they did.
func story(ctx context.Context, scratch *stage.Scratch) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	onlooker := process{Place: scratch.Place, Name: "onlooker"}
	leave, err := onlooker.connect()
	if err != nil {
		return err
	}
	defer leave()
	if _, err := onlooker.uploads.InsertOne(ctx, upload{ID: key, Steps: []step{}}); err != nil {
		return err
	}

	receiver, err := onlooker.start(ctx, "receive", "receiver")
	if err != nil {
		return err
	}
	if err := receiver.Wait(); err != nil {
		return err
	}
	if err := onlooker.tryTheKey(ctx); err != nil {
		return err
	}
	first, err := onlooker.start(ctx, "finish", "finisher-1")
	if err != nil {
		return err
	}
	second, err := onlooker.start(ctx, "finish", "finisher-2")
	if err != nil {
		return err
	}
	if err := errors.Join(first.Wait(), second.Wait()); err != nil {
		return err
	}
	return onlooker.check(ctx)
}

// start starts another process of this program, in a role.
func (p *process) start(ctx context.Context, role, name string) (*exec.Cmd, error) {
	cmd, err := stage.Process(ctx, role, process{Place: p.Place, Name: name})
	if err != nil {
		return nil, err
	}
	return cmd, cmd.Start()
}

// tryTheKey shows that the key is held though no process has the lease.
func (p *process) tryTheKey(ctx context.Context) error {
	_, err := p.locks.TryAcquire(ctx, key)
	var held *mongolock.HeldError
	if !errors.As(err, &held) {
		return fmt.Errorf("the key should be held: %w", cmp.Or(err, errors.New("it was granted")))
	}
	p.say("tries the lock: held by %s, which is gone, for %v at most", held.Holders[0].Owner, held.Left().Round(time.Second))
	return nil
}

func (p *process) check(ctx context.Context) error {
	var u upload
	if err := p.uploads.FindOne(ctx, bson.M{"_id": key}).Decode(&u); err != nil {
		return err
	}
	if len(u.Steps) != 2 || u.Steps[0].PID == u.Steps[1].PID || u.Steps[0].Token != u.Steps[1].Token {
		return fmt.Errorf("want two steps of two processes under one token: %+v", u.Steps)
	}
	fmt.Println("\nTwo steps by two processes under one token: correct")
	return nil
}
