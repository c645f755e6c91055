package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

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
		fmt.Println("leads, with a token:", term.Token() > 0)
		cancel()     // the process is told to stop
		<-ctx.Done() // ends also if the term is lost; then fn is called again in the next term
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// leads, with a token: true
	// <nil>
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
			cancel() // else it would stand again a second later
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

// A liveness probe restarts the process if its work does not stop when it should.
func ExampleHealthy() {
	c, err := leader.New(client(), "billing")
	if err != nil {
		log.Fatal(err)
	}
	healthy := leader.Healthy(30*time.Second, c)
	http.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := healthy(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	fmt.Println(healthy(nil))
	// Output: <nil>
}

// A deploy starts the new process, and stops the old one, which leads until the new one is ready.
func ExampleAwaitSuccessor() {
	in := memstore.New()
	run := func(ctx context.Context, name string, over chan<- error, led chan<- string) {
		locks, err := mongolock.NewWithStore(in, mongolock.WithOwner(name))
		if err != nil {
			log.Fatal(err)
		}
		over <- leader.Run(ctx, locks, "billing", func(ctx context.Context, _ leader.Term) error {
			led <- name
			<-ctx.Done()
			return ctx.Err()
		}, leader.AwaitSuccessor(time.Minute))
	}
	led, over := make(chan string), make(chan error)
	first, stopFirst := context.WithCancel(context.Background())
	go run(first, "version 1", over, led)
	fmt.Println(<-led)
	stopFirst() // nobody else is ready yet: it leads for a minute at most

	second, stopSecond := context.WithTimeout(context.Background(), time.Minute)
	defer stopSecond()
	go run(second, "version 2", over, led)
	fmt.Println(<-over, <-led)
	// Output:
	// version 1
	// <nil> version 2
}
