package guide

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
)

// An oldLock stands for the lock that a program had before, in this process.
type oldLock struct {
	mu   sync.Mutex
	held bool
}

var errTaken = errors.New("taken")

func (o *oldLock) obtain(context.Context) (release func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held {
		return nil, errTaken
	}
	o.held = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.held = false
	}, nil
}

// both runs a job under the old lock and the new one. Every process that has both takes
// the old one first.
func both(ctx context.Context, obtainOld func(context.Context) (release func(), err error), locks mongolock.Locker, key string, job func(context.Context) error) error {
	release, err := obtainOld(ctx)
	if err != nil {
		return err
	}
	defer release()
	return mongolock.Do(ctx, locks, key, func(ctx context.Context, lease *mongolock.Lease) error {
		return job(ctx)
	})
}

// Processes of three releases: with the old lock alone, with both, with the new one alone.
func Example_both() {
	ctx := context.Background()
	here, there, end := two()
	defer end()
	old := new(oldLock)
	job := func(context.Context) error { return nil }

	// The old release has it: neither it nor the second release gets in.
	release, err := old.obtain(ctx)
	check(err)
	fmt.Println("beside the old release:", both(ctx, old.obtain, here.locks, "report", job))
	release()

	// The third release has it: the second one waits.
	lease, err := there.locks.Acquire(ctx, "report")
	check(err)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	err = both(short, old.obtain, here.locks, "report", job)
	fmt.Println("beside the new release:", errors.Is(err, mongolock.ErrHeld))
	check(lease.Release())

	fmt.Println("alone:", both(ctx, old.obtain, here.locks, "report", job))
	// Output:
	// beside the old release: taken
	// beside the new release: true
	// alone: <nil>
}

func Example_fromRedislock() {
	ctx := context.Background()
	here, _, end := two()
	defer end()
	locks := here.locks

	lease, err := locks.TryAcquire(ctx, "my-key", mongolock.TTL(10*time.Second))
	if errors.Is(err, mongolock.ErrHeld) {
		fmt.Println("somebody else has it")
		return
	} else if err != nil {
		log.Print(err)
		return
	}
	defer lease.Release()
	ctx = lease.Context(ctx) // in place of lock.Refresh
	fmt.Println("has it:", ctx.Err() == nil)
	// Output: has it: true
}

func Example_fromRedsync() {
	ctx := context.Background()
	here, _, end := two()
	defer end()
	locks := here.locks

	err := mongolock.Do(ctx, locks, "my-global-mutex", func(ctx context.Context, lease *mongolock.Lease) error {
		fmt.Println("has it")
		return nil
	}, mongolock.MaxWait(16*time.Second))
	if err != nil {
		log.Print(err)
	}
	// Output: has it
}

func Example_fromMongoLock() {
	ctx := context.Background()
	here, _, end := two()
	defer end()
	locks := here.locks

	lease, err := locks.TryAcquire(ctx, "resource1", mongolock.Note("nightly"))
	if errors.Is(err, mongolock.ErrHeld) { // lock.ErrAlreadyLocked
		return
	}
	check(err)
	defer lease.Release()

	reader, err := locks.TryAcquire(ctx, "resource2", mongolock.Shared())
	check(err)
	defer reader.Release()
	fmt.Println(lease.Key(), reader.Key())
	// Output: resource1 resource2
}

func Example_fromEtcd() {
	ctx := context.Background()
	here, _, end := two()
	defer end()
	locks := here.locks

	lease, err := locks.Acquire(ctx, "my-lock", mongolock.TTL(10*time.Second))
	check(err)
	defer lease.Release()
	select {
	case <-lease.Done(): // session.Done()
		fmt.Println("lost")
	default:
		fmt.Println("has it")
	}
	// Output: has it
}
