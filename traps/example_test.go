package traps_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/traps"
)

// A program may look once, when it starts. Here no server answers, so nothing is known.
func ExampleCheck() {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:9"))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	d, err := traps.Check(ctx, client)
	if err != nil {
		fmt.Println("the deployment did not answer")
		return
	}
	for _, t := range d.Traps() {
		fmt.Println(t.Name, t.Says, t.Why, t.Do)
	}
	// Output: the deployment did not answer
}

func ExampleDeployment_Traps() {
	d := traps.Deployment{Version: traps.Version{8, 0, 4}, Engine: "inMemory", Voting: 2, Arbiters: 1}
	for _, t := range d.Traps() {
		fmt.Printf("%s: %s; %s\n", t.Name, t.Says, t.Do)
	}
	// Output:
	// memory-engine: the storage engine keeps its data in memory; use WiredTiger
	// arbiter: an arbiter, and two members that keep data; put a third member with data in the arbiter's place
}
