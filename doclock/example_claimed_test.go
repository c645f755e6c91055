package doclock_test

import (
	"fmt"

	"github.com/mongolock/mongolock/doclock"
)

// claimedOne is a message that was claimed, and the function that ends the example.
func claimedOne() (*doclock.Locks[Message], *doclock.Claimed[Message], func()) {
	db := database()
	insert(db.Collection("outbox"), Message{1, "new"})
	outbox, err := doclock.New[Message](db.Collection("outbox"))
	check(err)
	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	return outbox, msg, func() {
		check(outbox.Close())
		check(db.Drop(ctx))
	}
}

// What is done with the message ends with its lease.
func ExampleClaimed_Lease() {
	_, msg, end := claimedOne()
	defer end()
	working := msg.Lease().Context(ctx)
	check(msg.Complete(ctx))
	fmt.Println(working.Err())
	// Output: context canceled
}

func ExampleClaimed_ID() {
	_, msg, end := claimedOne()
	defer end()
	fmt.Println(msg.ID().AsInt64())
	// Output: 1
}

func ExampleClaimed_Holder() {
	_, msg, end := claimedOne()
	defer end()
	fmt.Println(msg.Holder().ID == msg.Lease().ID())
	// Output: true
}

func ExampleClaimed_Save() {
	_, msg, end := claimedOne()
	defer end()
	msg.Value.State = "half sent"
	fmt.Println(msg.Save(ctx), msg.Lease().Err())
	// Output: <nil> <nil>
}

func ExampleClaimed_Release() {
	outbox, msg, end := claimedOne()
	defer end()
	check(msg.Release())
	msg, err := outbox.TryClaim(ctx, fresh, oldest)
	check(err)
	fmt.Println("claimed again, attempt", msg.Attempts())
	// Output: claimed again, attempt 2
}
