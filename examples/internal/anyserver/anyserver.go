// Package anyserver gives the tests of a package whatever MongoDB the machine has.
package anyserver

import (
	"context"
	"log"
	"os"
	"testing"
	"time"

	"github.com/mongolock/mongolock/devmongo"
)

// Main runs the tests with a server at *uri: that of MONGODB_URI, or else one that is
// started, embedded if there is no other. It returns the exit code.
func Main(m *testing.M, uri *string) int {
	if *uri = os.Getenv("MONGODB_URI"); *uri != "" {
		return m.Run()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := devmongo.Start(ctx, "")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer func() {
		if err := server.Stop(); err != nil {
			log.Print(err)
		}
	}()
	*uri = server.URI()
	return m.Run()
}
