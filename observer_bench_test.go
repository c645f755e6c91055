package mongolock_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// A quiet observer does nothing.
type quiet struct{}

func (quiet) Begin(ctx context.Context, _ mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	return ctx, func(mongolock.Outcome) {}
}

// A pair in memory, without and with an observer: what it costs.
func BenchmarkAFreePairWithAnObserver(b *testing.B) {
	for name, opts := range map[string][]mongolock.ClientOption{"none": nil, "quiet": {mongolock.WithObserver(quiet{})}} {
		b.Run(name, func(b *testing.B) {
			client := newClient(b, memstore.New(), opts...)
			for b.Loop() {
				lease, err := client.Acquire(b.Context(), "k")
				if err != nil {
					b.Fatal(err)
				}
				_ = lease.Release()
			}
		})
	}
}

func BenchmarkStatsOf10000Leases(b *testing.B) {
	client := newClient(b, memstore.New())
	for i := range 10_000 {
		_, err := client.Acquire(b.Context(), fmt.Sprint(i))
		require.NoError(b, err)
	}
	for b.Loop() {
		if client.Stats().Held != 10_000 {
			b.Fatal("a lease is missing")
		}
	}
}
