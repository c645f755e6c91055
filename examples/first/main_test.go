package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/mongolock/mongolock/examples/internal/anyserver"
)

var uri string

func TestMain(m *testing.M) { os.Exit(anyserver.Main(m, &uri)) }

// The program of the README, with the server of this machine in place of yours.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, uri); err != nil {
		log.Print(err)
	}
	fmt.Println("and everybody may again")
	// Output:
	// nobody else changes item 17 now
	// and everybody may again
}
