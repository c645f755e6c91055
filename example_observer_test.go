package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// metrics counts operations by their outcome, and those that are under way. A bridge to a
// metrics system needs no more than this.
type metrics struct {
	mu       sync.Mutex
	ended    map[string]int
	underWay map[mongolock.Op]int
	longest  map[mongolock.Op]time.Duration
}

func newMetrics() *metrics {
	return &metrics{
		ended:    make(map[string]int),
		underWay: make(map[mongolock.Op]int),
		longest:  make(map[mongolock.Op]time.Duration),
	}
}

func (m *metrics) Begin(ctx context.Context, op mongolock.Op, _ string) (context.Context, func(mongolock.Outcome)) {
	begun := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.underWay[op]++
	return ctx, func(out mongolock.Outcome) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.underWay[op]--
		m.ended[string(op)+" "+ending(out.Err)]++
		m.longest[op] = max(m.longest[op], time.Since(begun))
	}
}

// ending returns a label for an outcome, one of few.
func ending(err error) string {
	switch {
	case err == nil, errors.Is(err, mongolock.ErrReleased):
		return "ok"
	case errors.Is(err, mongolock.ErrHeld):
		return "held"
	case errors.Is(err, mongolock.ErrLost):
		return "lost"
	}
	return "error"
}

// An Observer can feed metrics.
func ExampleWithObserver() {
	ctx := context.Background()
	m := newMetrics()
	client := connect(memstore.New(), mongolock.WithObserver(m))
	defer client.Close()

	lease := mustAcquire(client, "nightly-report")
	fmt.Println("held now:", m.underWay[mongolock.OpHold])
	_, _ = client.TryAcquire(ctx, "nightly-report")
	lease.Release()
	fmt.Println("held now:", m.underWay[mongolock.OpHold])

	for _, label := range slices.Sorted(maps.Keys(m.ended)) {
		fmt.Println(label, m.ended[label])
	}
	// Output:
	// held now: 1
	// held now: 0
	// acquire held 1
	// acquire ok 1
	// hold ok 1
	// release ok 1
}

// A tracer puts its span into the context, so that operations within it become its children.
type tracer struct{}

type spanKey struct{}

func (tracer) Begin(ctx context.Context, op mongolock.Op, key string) (context.Context, func(mongolock.Outcome)) {
	span := fmt.Sprintf("%s %s", op, key)
	if parent, ok := ctx.Value(spanKey{}).(string); ok {
		span = parent + " > " + span
	}
	return context.WithValue(ctx, spanKey{}, span), func(mongolock.Outcome) { fmt.Println(span) }
}

// An Observer can also make traces.
func ExampleObserver() {
	ctx := context.WithValue(context.Background(), spanKey{}, "POST /report")
	client := connect(memstore.New(), mongolock.WithObserver(tracer{}))
	defer client.Close()

	lease, err := client.Acquire(ctx, "nightly-report")
	if err != nil {
		fmt.Println(err)
		return
	}
	lease.Release()
	// Output:
	// POST /report > acquire nightly-report
	// POST /report > acquire nightly-report > hold nightly-report
	// POST /report > acquire nightly-report > release nightly-report
}
