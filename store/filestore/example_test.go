package filestore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/filestore"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Two stores on one directory exclude each other, as two processes of a host do.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "locks")
	check(err)
	defer os.RemoveAll(dir)

	var clients []*mongolock.Client
	for range 2 {
		s, err := filestore.Open(dir)
		check(err)
		defer s.Close()
		client, err := mongolock.NewWithStore(s)
		check(err)
		defer client.Close()
		clients = append(clients, client)
	}
	ctx := context.Background()
	lease, err := clients[0].Acquire(ctx, "nightly-report")
	check(err)
	ran, err := mongolock.TryDo(ctx, clients[1], "nightly-report", func(context.Context, *mongolock.Lease) error { return nil })
	fmt.Println(ran, err)
	check(lease.Release())
	ran, err = mongolock.TryDo(ctx, clients[1], "nightly-report", func(context.Context, *mongolock.Lease) error { return nil })
	fmt.Println(ran, err)
	// Output:
	// false <nil>
	// true <nil>
}
