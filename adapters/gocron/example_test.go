package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/mongolock/mongolock"
	gocronlock "github.com/mongolock/mongolock/adapters/gocron"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store/memstore"
)

// The locker takes the place of any other locker of gocron.
func ExampleNewLocker_inPlaceOfAnother() {
	client, err := mongolock.NewWithStore(memstore.New()) // mongolock.New(collection) between processes
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()

	locker, err := gocronlock.NewLocker(client, gocronlock.With(mongolock.MinHold(30*time.Second)))
	if err != nil {
		log.Panic(err)
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Panic(err)
	}
	ran := make(chan struct{})
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func() { close(ran) }), gocron.WithName("report"))
	if err != nil {
		log.Panic(err)
	}
	s.Start()
	<-ran
	fmt.Println("ran under its lock")
	if err := s.Shutdown(); err != nil {
		log.Panic(err)
	}
	// Output: ran under its lock
}

// A twoLocks takes the old lock of a job and then the new one, while both releases run.
type twoLocks struct{ old, new gocron.Locker }

func (l twoLocks) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	first, err := l.old.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	second, err := l.new.Lock(ctx, key)
	if err != nil {
		return nil, errors.Join(err, first.Unlock(ctx))
	}
	return bothHeld{first, second}, nil
}

type bothHeld struct{ first, second gocron.Lock }

func (h bothHeld) Unlock(ctx context.Context) error {
	return errors.Join(h.second.Unlock(ctx), h.first.Unlock(ctx))
}

func ExampleNewLocker_besideAnother() {
	var lockers []gocron.Locker
	for range 2 {
		client, err := mongolock.NewWithStore(memstore.New())
		if err != nil {
			log.Panic(err)
		}
		defer client.Close()
		locker, err := gocronlock.NewLocker(client)
		if err != nil {
			log.Panic(err)
		}
		lockers = append(lockers, locker)
	}
	ctx := context.Background()
	old, next := lockers[0], lockers[1]
	both := twoLocks{old, next}

	for _, other := range []gocron.Locker{old, next} { // of release 1, and of release 3
		theirs, err := other.Lock(ctx, "report")
		if err != nil {
			log.Panic(err)
		}
		_, err = both.Lock(ctx, "report")
		fmt.Println("refused:", errors.Is(err, mongolock.ErrHeld))
		if err := theirs.Unlock(ctx); err != nil {
			log.Panic(err)
		}
	}
	ours, err := both.Lock(ctx, "report")
	if err != nil {
		log.Panic(err)
	}
	for _, other := range []gocron.Locker{old, next} {
		_, err = other.Lock(ctx, "report")
		fmt.Println("keeps the other release out:", errors.Is(err, mongolock.ErrHeld))
	}
	fmt.Println(ours.Unlock(ctx))
	// Output:
	// refused: true
	// refused: true
	// keeps the other release out: true
	// keeps the other release out: true
	// <nil>
}

func ExampleNewElector() {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	candidate, err := leader.New(client, "jobs")
	if err != nil {
		log.Fatal(err)
	}
	elector, err := gocronlock.NewElector(candidate) // for gocron.WithDistributedElector
	fmt.Println(elector.IsLeader(context.Background()), err)
	// Output: gocronlock: another host leads <nil>
}
