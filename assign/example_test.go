package assign_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/store/memstore"
)

// newClient is a client as one process has it.
func newClient() *mongolock.Client {
	c, err := mongolock.NewWithStore(memstore.New(), mongolock.WithOwner("host-a"))
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// start calls Run in the background, for four partitions, and returns what ends it.
func start(client *mongolock.Client) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- assign.Run(ctx, client, "orders", 4, consume) }()
	return func() error {
		cancel()
		return <-over
	}
}

// consume works on a partition until it goes to another process.
func consume(ctx context.Context, _ assign.Partition) error {
	<-ctx.Done()
	return ctx.Err()
}

// until waits until the process works on n partitions, which are all.
func until(client *mongolock.Client, n int) {
	for {
		s, err := assign.Look(context.Background(), client, "orders")
		if err != nil {
			log.Fatal(err)
		}
		free := slices.ContainsFunc(s.Partitions, func(p assign.Part) bool { return p.Owner == "" })
		if len(s.Partitions) == n && !free {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func ExampleRun() {
	client := newClient()
	ctx, cancel := context.WithCancel(context.Background()) // or signal.NotifyContext
	err := assign.Run(ctx, client, "orders", 1, func(ctx context.Context, p assign.Partition) error {
		fmt.Println("partition", p.ID, "of", p.N)
		cancel()     // the process is told to stop
		<-ctx.Done() // ends also if the partition goes to another process
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// partition 0 of 1
	// <nil>
}

func ExampleLook() {
	client := newClient()
	stop := start(client)
	until(client, 4)
	s, err := assign.Look(context.Background(), client, "orders")
	fmt.Println(len(s.Workers), s.Workers[0].Owner, len(s.Partitions), s.Partitions[3].Owner, err)
	fmt.Println(stop())
	// Output:
	// 1 host-a 4 host-a <nil>
	// <nil>
}

func ExampleResize() {
	client := newClient()
	stop := start(client)
	until(client, 4)
	fmt.Println(assign.Resize(context.Background(), client, "orders", 8))
	until(client, 8)
	fmt.Println(stop())
	// Output:
	// <nil>
	// <nil>
}

// What the work of a partition needs is loaded while another process still works on it.
func ExamplePrepare() {
	client := newClient()
	ctx, cancel := context.WithCancel(context.Background())
	err := assign.Run(ctx, client, "orders", 1, func(ctx context.Context, p assign.Partition) error {
		fmt.Println("works on", p.ID)
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}, assign.Prepare(func(_ context.Context, p assign.Partition) error {
		fmt.Println("loads", p.ID)
		return nil
	}))
	fmt.Println(err)
	// Output:
	// loads 0
	// works on 0
	// <nil>
}
