package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
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

func ExampleWith() {
	err := leader.Run(context.Background(), client(), "billing", func(_ context.Context, term leader.Term) error {
		fmt.Println(term.Lease().Remaining() <= 10*time.Second)
		return nil
	}, leader.With(mongolock.TTL(10*time.Second)))
	fmt.Println(err)
	_, err = leader.New(client(), "billing", leader.With(mongolock.Shared()))
	fmt.Println(err)
	// Output:
	// true
	// <nil>
	// leader: With(Shared()): several processes would lead at the same time
}

func ExampleWithLogger() {
	_, err := leader.New(client(), "billing", leader.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(err)
	// Output: <nil>
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

func ExampleNew() {
	c, err := leader.New(client(), "billing", leader.With(mongolock.TTL(10*time.Second), mongolock.Note("version 7")))
	fmt.Println(c.IsLeader(), err)
	_, err = leader.New(client(), "")
	fmt.Println(err)
	// Output:
	// false <nil>
	// leader: New: the key is empty
}

// If fn returns while the process leads, Run returns: the process has given up for good.
func ExampleCandidate_Run() {
	c, err := leader.New(client(), "billing")
	if err != nil {
		log.Fatal(err)
	}
	err = c.Run(context.Background(), func(context.Context, leader.Term) error {
		return errors.New("the disk is full")
	})
	fmt.Println(err)
	// Output: the disk is full
}

func ExampleCandidate_Term() {
	c, err := leader.New(client(), "billing")
	if err != nil {
		log.Fatal(err)
	}
	_, in := c.Term()
	fmt.Println("before:", in)
	err = c.Run(context.Background(), func(_ context.Context, mine leader.Term) error {
		term, in := c.Term()
		fmt.Println("in its term:", in, term == mine)
		return nil
	})
	fmt.Println(err)
	// Output:
	// before: false
	// in its term: true true
	// <nil>
}

// A resource that refuses a lower token than it has seen is safe from a leader that was
// paused.
func ExampleTerm_Token() {
	locks := client()
	var tokens []int64
	for range 2 {
		err := leader.Run(context.Background(), locks, "billing", func(_ context.Context, term leader.Term) error {
			tokens = append(tokens, term.Token())
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(tokens[0] < tokens[1])
	// Output: true
}

func ExampleTerm_Lease() {
	err := leader.Run(context.Background(), client(), "billing", func(_ context.Context, term leader.Term) error {
		fmt.Println(term.Lease().Key(), "alive:", term.Lease().Err() == nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// billing alive: true
	// <nil>
}

func ExampleCandidate_IsLeader() {
	c, err := leader.New(client(), "billing")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("before:", c.IsLeader())
	err = c.Run(context.Background(), func(context.Context, leader.Term) error {
		fmt.Println("in its term:", c.IsLeader())
		return nil // gives up for good
	})
	fmt.Println("after:", c.IsLeader(), err)
	// Output:
	// before: false
	// in its term: true
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

func ExampleCurrent() {
	is, err := leader.Current(context.Background(), client(), "billing")
	fmt.Printf("%q %v\n", is.Owner, err)
	// Output: "" <nil>
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

// What the work needs is loaded before this process can be elected.
func ExampleWarm() {
	rates := 0
	err := leader.Run(context.Background(), client(), "billing", func(context.Context, leader.Term) error {
		fmt.Println("leads, with", rates, "rates")
		return nil
	}, leader.Warm(func(context.Context) error {
		rates = 3
		return nil
	}))
	fmt.Println(err)
	// Output:
	// leads, with 3 rates
	// <nil>
}

// A process in the database's zone leads whenever there is one.
func ExamplePriority() {
	in, led := memstore.New(), make(chan string)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	run := func(name string, priority int) {
		locks, err := mongolock.NewWithStore(in, mongolock.WithOwner(name))
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close()
		_ = leader.Run(ctx, locks, "billing", func(ctx context.Context, _ leader.Term) error {
			led <- name
			<-ctx.Done()
			return ctx.Err()
		}, leader.Priority(priority))
	}
	go run("far", 0)
	fmt.Println(<-led)
	go run("near", 1)
	fmt.Println(<-led)
	// Output:
	// far
	// near
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
