package lab

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// Test runs a test in a bubble of virtual time, on a store in memory.
func Test(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New(memstore.New())) })
}

// Client makes a silent client that is closed when the test is over. The bubble then notices any
// goroutine that it left behind.
func Client(t testing.TB, s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	t.Helper()
	c, err := mongolock.NewWithStore(s, append([]mongolock.ClientOption{mongolock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
