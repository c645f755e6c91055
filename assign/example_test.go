package assign_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/store/memstore"
)

// newClient is a client as one process has it.
func newClient(in *memstore.Store, owner string) *mongolock.Client {
	c, err := mongolock.NewWithStore(in, mongolock.WithOwner(owner))
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// start calls Run in a process of its own, and returns what ends it.
func start(client *mongolock.Client, n int, opts ...assign.Option) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- assign.Run(ctx, client, "orders", n, consume, opts...) }()
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

// until waits until each worker has a partition at least, and returns how many each has, by owner.
func until(client *mongolock.Client, workers int) map[string]int {
	for {
		s, err := assign.Look(context.Background(), client, "orders")
		if err != nil {
			log.Fatal(err)
		}
		shares := make(map[string]int)
		for _, p := range s.Partitions {
			shares[p.Owner]++
		}
		if len(shares) == workers && shares[""] == 0 {
			return shares
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func ExampleRun() {
	client := newClient(memstore.New(), "host-a")
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
	client := newClient(memstore.New(), "host-a")
	stop := start(client, 4)
	until(client, 1)
	s, err := assign.Look(context.Background(), client, "orders")
	fmt.Println(len(s.Workers), s.Workers[0].Owner, len(s.Partitions), s.Partitions[3].Owner, err)
	fmt.Println(stop())
	// Output:
	// 1 host-a 4 host-a <nil>
	// <nil>
}

func ExampleWeight() {
	in := memstore.New()
	a, b := newClient(in, "small"), newClient(in, "large")
	stopA := start(a, 8, assign.Settle(0))
	until(a, 1)
	stopB := start(b, 8, assign.Weight(3), assign.Settle(0))
	for until(a, 2)["large"] < 6 {
	}
	fmt.Println(until(a, 2))
	fmt.Println(stopA(), stopB())
	// Output:
	// map[large:6 small:2]
	// <nil> <nil>
}

func ExampleResize() {
	client := newClient(memstore.New(), "host-a")
	stop := start(client, 4)
	until(client, 1)
	fmt.Println(assign.Resize(context.Background(), client, "orders", 8))
	fmt.Println(until(client, 1))
	fmt.Println(stop())
	// Output:
	// <nil>
	// map[host-a:8]
	// <nil>
}

func ExampleSizeError() {
	in := memstore.New()
	a, b := newClient(in, "host-a"), newClient(in, "host-b")
	stop := start(a, 4)
	until(a, 1)
	err := assign.Run(context.Background(), b, "orders", 8, consume)
	if size, ok := errors.AsType[*assign.SizeError](err); ok {
		fmt.Println(size.There, size.Here, errors.Is(err, assign.ErrSize))
	}
	fmt.Println(stop())
	// Output:
	// 4 8 true
	// <nil>
}

func ExampleSizeError_Error() {
	fmt.Println((&assign.SizeError{Name: "orders", There: 4, Here: 8}).Error())
	// Output: assign: "orders" has 4 partitions in the processes that run, or died less than a TTL ago, and 8 in this one: start all with one number, and change it with Resize
}

func ExampleSizeError_Is() {
	fmt.Println(errors.Is(&assign.SizeError{}, assign.ErrSize))
	// Output: true
}

// What the work of a partition needs is loaded while another process still works on it.
func ExamplePrepare() {
	client := newClient(memstore.New(), "host-a")
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

func ExamplePartition_Lease() {
	client := newClient(memstore.New(), "host-a")
	ctx, cancel := context.WithCancel(context.Background())
	err := assign.Run(ctx, client, "orders", 1, func(ctx context.Context, p assign.Partition) error {
		p.Lease().Progress() // MaxStall asks for that now and then
		fmt.Println(p.Lease().Key(), p.Lease().Token() == p.Token)
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}, assign.MaxStall(time.Minute))
	fmt.Println(err)
	// Output:
	// orders/0000 true
	// <nil>
}

// run calls Run with an option, for as long as the first partition takes.
func run(opts ...assign.Option) error {
	ctx, cancel := context.WithCancel(context.Background())
	return assign.Run(ctx, newClient(memstore.New(), "host-a"), "orders", 1, func(ctx context.Context, _ assign.Partition) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}, opts...)
}

// A process that Kubernetes gives a minute has that much to hand over its partitions.
func ExampleDrain() {
	fmt.Println(run(assign.Drain(40*time.Second), assign.Grace(15*time.Second)))
	fmt.Println(run(assign.Drain(-1)))
	// Output:
	// <nil>
	// assign: Drain(-1ns): must not be negative
}

func ExampleGrace() {
	fmt.Println(run(assign.Grace(15 * time.Second)))
	fmt.Println(run(assign.Grace(0)))
	// Output:
	// <nil>
	// assign: Grace(0s): must be positive
}

func ExampleMaxStall() {
	fmt.Println(run(assign.MaxStall(time.Minute)))
	fmt.Println(run(assign.MaxStall(0)))
	// Output:
	// <nil>
	// assign: MaxStall(0s): must be positive
}

func ExampleSettle() {
	fmt.Println(run(assign.Settle(30 * time.Second)))
	// Output: <nil>
}

func ExampleWithLogger() {
	fmt.Println(run(assign.WithLogger(slog.New(slog.DiscardHandler))))
	// Output: <nil>
}
