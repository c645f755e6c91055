package store_test

import (
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/store"
)

func ExampleIsVerdict() {
	fmt.Println(store.IsVerdict(fmt.Errorf("nightly: %w", &store.HeldError{})))
	fmt.Println(store.IsVerdict(errors.New("connection reset")))
	// Output:
	// true
	// false
}

// A fault that left no trace is certain too.
func ExampleIsCertain() {
	refused := fmt.Errorf("no server to send it to: %w", store.ErrNotApplied)
	fmt.Println(store.IsCertain(refused), store.IsVerdict(refused))
	fmt.Println(store.IsCertain(errors.New("connection reset")))
	// Output:
	// true false
	// false
}
