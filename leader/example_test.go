package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store/memstore"
)

func client() *mongolock.Client {
	c, err := mongolock.NewWithStore(memstore.New(), mongolock.WithOwner("host-a"))
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func ExampleRun() {
	ctx, cancel := context.WithCancel(context.Background())
	err := leader.Run(ctx, client(), "billing", func(ctx context.Context, term leader.Term) error {
		fmt.Println("in office")
		cancel()     // the process is told to stop
		<-ctx.Done() // ends too if the term is lost: then it is called again, in the next one
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// in office
	// <nil>
}

func ExampleCandidate_IsLeader() {
	c, err := leader.New(client(), "billing")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("before:", c.IsLeader())
	err = c.Run(context.Background(), func(context.Context, leader.Term) error {
		fmt.Println("in office:", c.IsLeader())
		return nil // gives up for good
	})
	fmt.Println("after:", c.IsLeader(), err)
	// Output:
	// before: false
	// in office: true
	// after: false <nil>
}

func ExampleCandidate_Resign() {
	c, err := leader.New(client(), "billing")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = c.Run(ctx, func(term context.Context, _ leader.Term) error {
		go func() {
			_ = c.Resign(context.Background())
			cancel() // or it would stand again, a second later
		}()
		<-term.Done()
		fmt.Println("resigned:", errors.Is(context.Cause(term), leader.ErrResigned))
		return nil
	})
	fmt.Println(err)
	// Output:
	// resigned: true
	// <nil>
}

func ExampleWatch() {
	locks := client()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_ = leader.Run(ctx, locks, "billing", func(ctx context.Context, _ leader.Term) error {
			<-ctx.Done()
			return nil
		})
	}()
	for is, err := range leader.Watch(context.Background(), locks, "billing") {
		if err != nil {
			log.Fatal(err)
		}
		if is.Owner != "" {
			fmt.Println(is.Owner, "leads")
			break
		}
	}
	cancel()
	// Output: host-a leads
}

func ExampleCurrent() {
	is, err := leader.Current(context.Background(), client(), "billing")
	fmt.Printf("%q %v\n", is.Owner, err)
	// Output: "" <nil>
}
