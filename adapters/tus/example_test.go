package tuslock_test

import (
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
