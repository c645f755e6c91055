package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// Many processes may read the catalogue at once. A process that rebuilds it holds the key
// alone.
func ExampleShared() {
	ctx := context.Background()
	s := memstore.New()
	client := connect(s)
	defer client.Close()

	one := mustAcquire(client, "catalogue", mongolock.Shared())
	two := mustAcquire(client, "catalogue", mongolock.Shared())
	_, err := client.TryAcquire(ctx, "catalogue")
	fmt.Println("a writer beside readers:", errors.Is(err, mongolock.ErrHeld))

	one.Release()
	two.Release()
	writer := mustAcquire(client, "catalogue")
	defer writer.Release()
	_, err = client.TryAcquire(ctx, "catalogue", mongolock.Shared())
	fmt.Println("a reader beside a writer:", errors.Is(err, mongolock.ErrHeld))
	// Output:
	// a writer beside readers: true
	// a reader beside a writer: true
}

// Renderings may use 20 GB in all, and those of one tenant 3.
func ExampleWeight() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	render := func(tenant string, gigabytes int) error {
		memory := mongolock.Weight(gigabytes)
		_, err := mongolock.AcquireAll(ctx, client, []string{tenant, "~ all"},
			mongolock.For(tenant, mongolock.OneOf(3), memory), mongolock.For("~ all", mongolock.OneOf(20), memory),
			mongolock.MaxWait(10*time.Millisecond))
		return err
	}
	fmt.Println(render("anna", 2))
	fmt.Println(errors.Is(render("anna", 2), mongolock.ErrHeld))
	fmt.Println(render("ben", 3))
	all, err := client.Inspect(ctx, "~ all")
	fmt.Printf("%d of 20 taken: %v\n", all.Taken(), err)
	// Output:
	// <nil>
	// true
	// <nil>
	// 5 of 20 taken: <nil>
}

// The mail server allows two connections, from any number of processes.
func ExampleOneOf() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	for range 2 {
		permit := mustAcquire(client, "smtp", mongolock.OneOf(2))
		defer permit.Release()
	}
	_, err := client.TryAcquire(ctx, "smtp", mongolock.OneOf(2))
	fmt.Println("a third:", errors.Is(err, mongolock.ErrHeld))

	_, err = client.TryAcquire(ctx, "smtp", mongolock.Shared())
	fmt.Println(err)
	// Output:
	// a third: true
	// mongolock: "smtp" is in use as permits, not as shared
}

// A transfer needs both accounts. AcquireAll asks for them in a fixed order, so two
// transfers that name the accounts in opposite order do not deadlock.
func ExampleAcquireAll() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	accounts, err := mongolock.AcquireAll(ctx, client, []string{"account/7", "account/3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer accounts.Release()
	for _, lease := range accounts {
		fmt.Println(lease.Key())
	}

	_, err = mongolock.AcquireAll(ctx, client, []string{"account/3", "account/3"})
	fmt.Println(err)
	// Output:
	// account/7
	// account/3
	// mongolock: AcquireAll: the key "account/3" is given twice
}

// Inspect shows all holders of a shared key, and who waits for it.
func ExampleClient_Inspect_shared() {
	ctx := context.Background()
	s := memstore.New()
	client := connect(s, mongolock.WithOwner("host-a/17"))
	defer client.Close()
	lease := mustAcquire(client, "catalogue", mongolock.Shared(), mongolock.Note("search"))
	defer lease.Release()
	waiting := store.Claim{Ref: store.Ref{Key: "catalogue", ID: "writer", Mode: store.Exclusive}, TTL: 1e9, Place: store.NewPlace(store.Exclusive, 1, 1, "")}
	_, _ = s.Acquire(ctx, waiting)

	status, err := client.Inspect(ctx, "catalogue")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, holder := range status.Holders {
		fmt.Println(status.Mode, "by", holder.Owner, "for", holder.Note)
	}
	for _, waiter := range status.Line {
		mode, _ := waiter.Place.Mode()
		fmt.Println(mode, "wanted")
	}
	// Output:
	// shared by host-a/17 for search
	// exclusive wanted
}
