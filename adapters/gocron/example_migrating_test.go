package gocronlock_test

import (
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/mongolock/mongolock"
	gocronlock "github.com/mongolock/mongolock/adapters/gocron"
	"github.com/mongolock/mongolock/store/memstore"
)

// The locker takes the place of any other locker of gocron.
func ExampleNewLocker_inPlaceOfAnother() {
	client, err := mongolock.NewWithStore(memstore.New()) // mongolock.New(collection) between processes
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()

	locker, err := gocronlock.NewLocker(client, gocronlock.Lease(mongolock.MinHold(30*time.Second)))
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
