// Package testchild runs a test's own binary again as further processes, each in a role and
// with an order.
//
//	func TestMain(m *testing.M) {
//		testchild.Main(m, testchild.Roles{"worker": testchild.As(work)})
//	}
//
//	w := testchild.Start(t, "worker", order{Collection: name})
//	w.Says() // the next line that it prints
//	w.Kill() // with -9
//
// A child ends with its parent, however the parent ends: the child's context ends with its
// standard input, which the parent holds open.
package testchild

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// A Role is what a child does. Its order is the JSON of the one that Start was given.
type Role func(ctx context.Context, order []byte) error

// Roles are the roles of a test binary, by name.
type Roles map[string]Role

// As makes a Role of a function whose order has a type.
func As[T any](work func(ctx context.Context, order T) error) Role {
	return func(ctx context.Context, text []byte) error {
		var order T
		if err := json.Unmarshal(text, &order); err != nil {
			return err
		}
		return work(ctx, order)
	}
}

const (
	envRole  = "MONGOLOCK_TEST_ROLE"
	envOrder = "MONGOLOCK_TEST_ORDER"

	// endLimit is how long a child may take to end after it was told to.
	endLimit = 30 * time.Second
)

// Main is called by TestMain. It runs the tests or, in a child, the child's role.
func Main(m *testing.M, roles Roles) {
	name := os.Getenv(envRole)
	if name == "" {
		os.Exit(m.Run())
	}
	err := errors.New("no such role")
	if role := roles[name]; role != nil {
		err = role(untilInputEnds(), []byte(os.Getenv(envOrder)))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the child %q: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

type toldKey struct{}

// Told returns the lines that the parent sends to this child with Tell.
func Told(ctx context.Context) <-chan string {
	lines, _ := ctx.Value(toldKey{}).(chan string)
	return lines
}

// untilInputEnds returns a context that ends with this process's standard input.
func untilInputEnds() context.Context {
	lines := make(chan string, 16) // room for a child that does not listen: it must still see the end
	ctx, end := context.WithCancel(context.WithValue(context.Background(), toldKey{}, lines))
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
		end()
		time.AfterFunc(endLimit, func() {
			fmt.Fprintf(os.Stderr, "a child was told to end, and has not ended within %v\n", endLimit)
			os.Exit(1)
		})
	}()
	return ctx
}
