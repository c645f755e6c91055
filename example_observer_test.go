package mongolock_test

import (
	"context"
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

func (m *metrics) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	begun := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.underWay[of.Op]++
	return ctx, func(out mongolock.Outcome) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.underWay[of.Op]--
		m.ended[string(of.Op)+" "+mongolock.OutcomeOf(out.Err)]++
		m.longest[of.Op] = max(m.longest[of.Op], time.Since(begun))
	}
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
	// acquire granted 1
	// acquire held 1
	// hold released 1
	// release granted 1
}

// A tracer puts its span into the context, so that operations within it become its children.
type tracer struct{}

type spanKey struct{}

func (tracer) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	span := fmt.Sprintf("%s %s", of.Op, of.Key)
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
	// POST /report > acquire nightly-report > hold nightly-report > release nightly-report
}

// OutcomeOf names the end of a call, for a label or a log line.
func ExampleOutcomeOf() {
	ctx := context.Background()
	client := connect(memstore.New())
	defer client.Close()

	lease, err := client.TryAcquire(ctx, "nightly-report")
	fmt.Println(mongolock.OutcomeOf(err))
	_, err = client.TryAcquire(ctx, "nightly-report")
	fmt.Println(mongolock.OutcomeOf(err))
	_, err = client.Acquire(ctx, "nightly-report", mongolock.MaxWait(time.Millisecond))
	fmt.Println(mongolock.OutcomeOf(err))
	lease.Release()
	fmt.Println(mongolock.OutcomeOf(lease.Err()))
	// Output:
	// granted
	// held
	// timeout
	// released
}

// Stats are the numbers of a client now. Nothing is sent for them.
func ExampleClient_Stats() {
	client := connect(memstore.New())
	defer client.Close()
	lease := mustAcquire(client, "nightly-report")
	defer lease.Release()

	stats := client.Stats()
	fmt.Println("held:", stats.Held, "waiting:", stats.Waiters, "feed:", stats.Feed)
	// Output: held: 1 waiting: 0 feed: idle
}

// A program with several clients adds their numbers up.
func ExampleStats_Plus() {
	s := memstore.New()
	orders, reports := connect(s), connect(s)
	defer orders.Close()
	defer reports.Close()
	defer mustAcquire(orders, "order-17").Release()
	defer mustAcquire(reports, "nightly-report").Release()

	fmt.Println("held:", orders.Stats().Plus(reports.Stats()).Held)
	// Output: held: 2
}
