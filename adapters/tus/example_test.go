package tuslock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/mongolock/mongolock"
	tuslock "github.com/mongolock/mongolock/adapters/tus"
	"github.com/mongolock/mongolock/store/memstore"
)

// connect stands for mongolock.New(db.Collection("locks")).
func connect() *mongolock.Client {
	locks, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		panic(err)
	}
	return locks
}

// A host that dies frees its uploads within the TTL.
func ExampleNew() {
	locks := connect()
	defer locks.Close()
	_, err := tuslock.New(locks, mongolock.TTL(15*time.Second), mongolock.Note("uploads"))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleLocker_UseIn() {
	locks := connect()
	defer locks.Close()
	locker, err := tuslock.New(locks, mongolock.TTL(15*time.Second))
	if err != nil {
		panic(err)
	}
	composer := handler.NewStoreComposer()
	locker.UseIn(composer)
	fmt.Println(composer.UsesLocker)
	// Output: true
}

// tusd calls NewLock, Lock and Unlock. A second request for an upload makes the first one stop.
func ExampleLocker_NewLock() {
	locks := connect()
	defer locks.Close()
	locker, err := tuslock.New(locks)
	if err != nil {
		panic(err)
	}
	first, _ := locker.NewLock("17")
	stop := make(chan struct{})
	fmt.Println(first.Lock(context.Background(), func() { close(stop) }))
	go func() {
		<-stop
		fmt.Println("the first request stops")
		_ = first.Unlock()
	}()

	second, _ := locker.NewLock("17")
	fmt.Println(second.Lock(context.Background(), func() {}))
	fmt.Println(second.Unlock())
	// Output:
	// <nil>
	// the first request stops
	// <nil>
	// <nil>
}
