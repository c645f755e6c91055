package guide

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
)

// An oldLock stands for the lock that a program had before, in this process.
type oldLock struct {
	mu   sync.Mutex
	lose context.CancelCauseFunc // nil while it is free
}

var (
	errTaken = errors.New("taken")
	errLost  = errors.New("the old lock is lost")
)

func (o *oldLock) obtain(ctx context.Context) (held context.Context, release func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lose != nil {
		return nil, nil, errTaken
	}
	held, o.lose = context.WithCancelCause(ctx)
	return held, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.lose(context.Canceled)
		o.lose = nil
	}, nil
}

// both runs a job under the old lock and the new one. The old one is taken first, in every
// process. The context that obtainOld returns has to end when the old lock is lost.
func both(ctx context.Context, obtainOld func(context.Context) (held context.Context, release func(), err error), locks mongolock.Locker, key string, job func(context.Context) error) error {
	held, release, err := obtainOld(ctx)
	if err != nil {
		return err
	}
	defer release()
	return mongolock.Do(held, locks, key, func(ctx context.Context, lease *mongolock.Lease) error {
		return job(ctx) // ctx ends when either lock is lost
	})
}

// Processes of three releases: with the old lock alone, with both, with the new one alone.
func Example_both() {
	ctx := context.Background()
	here, there, end := two()
	defer end()
	old := new(oldLock)
	job := func(context.Context) error { return nil }

	// A process of the old release has the lock: release 2 does not get in.
	_, release, err := old.obtain(ctx)
	check(err)
	fmt.Println("beside the old release:", both(ctx, old.obtain, here.locks, "report", job))
	release()

	// A process of release 3 has the key: release 2 waits.
	lease, err := there.locks.Acquire(ctx, "report")
	check(err)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	err = both(short, old.obtain, here.locks, "report", job)
	fmt.Println("beside the new release:", errors.Is(err, mongolock.ErrHeld))
	check(lease.Release())

	fmt.Println("alone:", both(ctx, old.obtain, here.locks, "report", job))

	err = both(ctx, old.obtain, here.locks, "report", func(ctx context.Context) error {
		old.lose(errLost)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	fmt.Println("without the old lock:", err)
	// Output:
	// beside the old release: taken
	// beside the new release: true
	// alone: <nil>
	// without the old lock: the old lock is lost
}

// shedLock returns an obtainOld that takes a lock of ShedLock's.
func shedLock(locks *mongo.Collection, name, host string, atMost time.Duration) func(context.Context) (context.Context, func(), error) {
	return func(ctx context.Context) (context.Context, func(), error) {
		held, cancel := context.WithTimeout(ctx, atMost) // from before the command is sent
		now := time.Now().Truncate(time.Millisecond)
		mine := bson.M{"lockUntil": now.Add(atMost), "lockedAt": now, "lockedBy": host}
		_, err := locks.UpdateOne(ctx, bson.M{"_id": name, "lockUntil": bson.M{"$lte": now}},
			bson.M{"$set": mine}, options.UpdateOne().SetUpsert(true))
		if err != nil {
			cancel()
			return nil, nil, err // mongo.IsDuplicateKeyError(err): it is held
		}
		return held, func() {
			cancel()
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_, err := locks.UpdateOne(after, bson.M{"_id": name, "lockedAt": now, "lockedBy": host},
				bson.M{"$set": bson.M{"lockUntil": time.Now()}})
			if err != nil {
				log.Print("ShedLock's lock stays until lockUntil: ", err)
			}
		}, nil
	}
}

func Example_besideShedLock() {
	ctx := context.Background()
	here, _, end := two()
	defer end()
	locks, sheds := here.locks, here.db.Collection("shedLock")
	obtain := shedLock(sheds, "report", "host-b", time.Minute)

	// A Java process runs the job: its document is as ShedLock writes it.
	_, err := sheds.InsertOne(ctx, bson.M{"_id": "report", "lockUntil": time.Now().Add(time.Minute), "lockedAt": time.Now(), "lockedBy": "host-a"})
	check(err)
	err = both(ctx, obtain, locks, "report", report)
	fmt.Println("beside Java:", mongo.IsDuplicateKeyError(err))

	// It ends, as ShedLock ends it.
	_, err = sheds.UpdateOne(ctx, bson.M{"_id": "report"}, bson.M{"$set": bson.M{"lockUntil": time.Now().Add(-time.Second)}})
	check(err)
	check(both(ctx, obtain, locks, "report", func(ctx context.Context) error {
		_, _, err := obtain(ctx) // what a Java process would do meanwhile
		fmt.Println("Java beside it:", mongo.IsDuplicateKeyError(err))
		return report(ctx)
	}))
	free, err := sheds.CountDocuments(ctx, bson.M{"_id": "report", "lockUntil": bson.M{"$lte": time.Now()}})
	check(err)
	fmt.Println("free for Java:", free == 1)
	// Output:
	// beside Java: true
	// Java beside it: true
	// writing the report
	// free for Java: true
}

func Example_fromShedLock() {
	ctx := context.Background()
	here, _, end := two()
	defer end()
	locks := here.locks

	ran, err := mongolock.TryDo(ctx, locks, "report", func(ctx context.Context, lease *mongolock.Lease) error {
		return report(ctx)
	}, mongolock.MinHold(5*time.Minute))
	fmt.Println(ran, err)
	// Output:
	// writing the report
	// true <nil>
}

func Example_fromRedislock() {
	ctx := context.Background()
	here, _, end := two()
	defer end()
	locks := here.locks

	lease, err := locks.TryAcquire(ctx, "my-key", mongolock.TTL(10*time.Second))
	if errors.Is(err, mongolock.ErrHeld) {
		return
	}
	check(err)
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
	check(err)
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
