// Command leader does the billing in one of the processes that run it, and says how it is by HTTP.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")))
	check(err)
	locks, err := mongolock.New(conn.Database("mongolock").Collection("locks"), mongolock.TTL(10*time.Second))
	check(err)
	candidate, err := leader.New(locks, "billing",
		leader.Warm(load),                    // before this process stands for election
		leader.AwaitSuccessor(5*time.Second)) // a deploy: lead until the next process is ready
	check(err)

	healthy := leader.Healthy(30*time.Second, candidate) // no: a restart is needed
	http.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := healthy(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/leader", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, candidate.IsLeader()) })
	go func() { check(http.ListenAndServe(cmp.Or(os.Getenv("ADDRESS"), "localhost:8080"), nil)) }()

	err = candidate.Run(ctx, bill) // until ctx ends: then another process leads at once
	if ctx.Err() == nil {
		check(err)
	}
	locks.Close()
	conn.Disconnect(context.Background())
}

// load prepares what bill needs, while another process leads.
func load(ctx context.Context) error { return ctx.Err() }

// bill must return when ctx ends: then this process no longer leads.
func bill(ctx context.Context, term leader.Term) error {
	fmt.Println("leads")
	<-ctx.Done()
	return ctx.Err()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
