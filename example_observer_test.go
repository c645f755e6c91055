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
