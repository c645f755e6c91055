// Package testchild has a test run its own binary again, as further processes: each in
// a role, and with an order.
//
//	func TestMain(m *testing.M) {
//		testchild.Main(m, testchild.Roles{"worker": testchild.As(work)})
//	}
//
//	w := testchild.Start(t, "worker", order{Collection: name})
//	w.Says() // the next line that it prints
//	w.Kill() // with -9
//
// A child ends with its parent, however that ends: its context is that of its standard
// input, which the parent holds open.
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

// A Role is what a child does. It is given its order as Start was, in JSON.
type Role func(ctx context.Context, order []byte) error

// Roles are those of a test binary, by name.
type Roles map[string]Role

// As makes a Role of a function with an order of its own type.
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

	// atLast is how long a child may go on once it was told to end.
	atLast = 30 * time.Second
)

// Main is for TestMain: it runs the tests or, in a child, its role.
func Main(m *testing.M, roles Roles) {
	name := os.Getenv(envRole)
	if name == "" {
		os.Exit(m.Run())
	}
	err := errors.New("no such role")
	if role := roles[name]; role != nil {
		err = role(untilTold(), []byte(os.Getenv(envOrder)))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the child %q: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

type toldKey struct{}

// Told yields what the parent tells this child.
func Told(ctx context.Context) <-chan string {
	lines, _ := ctx.Value(toldKey{}).(chan string)
	return lines
}

// untilTold ends with this process's standard input.
func untilTold() context.Context {
	lines := make(chan string, 16) // those who listen to none still end
	ctx, end := context.WithCancel(context.WithValue(context.Background(), toldKey{}, lines))
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
		end()
		time.AfterFunc(atLast, func() {
			fmt.Fprintln(os.Stderr, "a child was told to end, and has not")
			os.Exit(1)
		})
	}()
	return ctx
}
