package system

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
	"github.com/mongolock/mongolock/store"
)

// A trial is several workers on a few keys while something goes wrong.
type trial struct {
	*fixture
	clients []*mongolock.Client
	keys    []string
	longest time.Duration // that a worker holds a key

	mu     sync.Mutex // protects what follows
	holds  map[string][]heldSpan
	faults int
	odd    []error
}

// A heldSpan is the time in which a lease said that it is held, from the first to the last
// look at it, by the one clock of this machine. If two spans of one key overlap, the promise
// is broken, however late the looks were.
type heldSpan struct {
	from, to time.Time
	token    int64
}

func newTrial(f *fixture, clients []*mongolock.Client, longest time.Duration) *trial {
	return &trial{fixture: f, clients: clients, keys: []string{"one", "two"}, longest: longest, holds: make(map[string][]heldSpan)}
}

// run lets the workers work until the trouble is over.
func (m *trial) run(trouble func()) {
	m.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, c := range m.clients {
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					m.work(ctx, c, m.keys[rand.N(len(m.keys))])
				}
			})
		}
	}
	trouble()
	stop()
	wg.Wait()
}

// work is one acquisition, held for a while.
func (m *trial) work(ctx context.Context, c *mongolock.Client, key string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	acquire := c.Acquire
	if rand.N(4) == 0 {
		acquire = c.TryAcquire
	}
	l, err := acquire(ctx, key)
	if err != nil {
		m.failed(l, err)
		time.Sleep(5 * time.Millisecond) // real: no hot loop while the server is down
		return
	}
	hold := heldSpan{from: time.Now(), token: l.Token()}
	for until := hold.from.Add(rand.N(m.longest)); ; time.Sleep(time.Millisecond) {
		now := time.Now()
		if l.Err() != nil || now.After(until) {
			break
		}
		hold.to = now // and it was held after that
	}
	m.mu.Lock()
	if !hold.to.IsZero() {
		m.holds[key] = append(m.holds[key], hold)
	}
	m.mu.Unlock()
	if err := l.Release(); err != nil && !errors.Is(err, mongolock.ErrLost) {
		m.failed(nil, err)
	}
}

// failed records an error, and whether it is a clean one.
func (m *trial) failed(l *mongolock.Lease, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults++
	switch {
	case l != nil, mongo.IsDuplicateKeyError(err), errors.Is(err, mongolock.ErrClosed), errors.Is(err, mongolock.ErrForeign), errors.Is(err, mongolock.ErrModeMismatch),
		!strings.HasPrefix(err.Error(), "mongolock: "),
		!errors.Is(err, mongolock.ErrHeld) && !errors.Is(err, mongolock.ErrOutcomeUnknown) && !errors.Is(err, store.ErrNotApplied) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
		m.odd = append(m.odd, err)
	}
}

// overlaps counts the pairs of holds of one key that overlap, or whose tokens are
// out of order.
func (m *trial) overlaps() (overlaps, disorder, holds int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range m.holds {
		slices.SortFunc(all, func(a, b heldSpan) int { return a.from.Compare(b.from) })
		for i := 1; i < len(all); i++ {
			if !all[i-1].to.Before(all[i].from) {
				overlaps++
			}
			if all[i-1].token >= all[i].token {
				disorder++
			}
		}
		holds += len(all)
	}
	return overlaps, disorder, holds
}

// mustHaveKeptThePromise judges the trial. Then everything must work again with the same
// clients, and nothing may stay behind.
func (m *trial) mustHaveKeptThePromise() {
	m.t.Helper()
	overlaps, disorder, holds := m.overlaps()
	m.t.Logf("%d holds, %d failures", holds, m.faults)
	assert.Zero(m.t, overlaps, "of %d holds, those that overlap", holds)
	assert.Zero(m.t, disorder, "of %d holds, those with a token out of order", holds)
	assert.GreaterOrEqual(m.t, holds, 20, "%d holds, %d failures: the test shows little", holds, m.faults)
	assert.NotZero(m.t, m.faults, "%d holds failures: the test shows little", holds)
	for _, err := range m.odd {
		m.t.Errorf("not a clean error: %v", err)
	}
	for i, c := range m.clients {
		for _, key := range m.keys {
			m.until(time.Now().Add(10*time.Second), fmt.Sprintf("client %d has %q again", i, key), func() bool {
				ctx, cancel := context.WithTimeout(context.Background(), pace.Of(2*time.Second))
				defer cancel()
				l, err := c.Acquire(ctx, key)
				return err == nil && l.Release() == nil
			})
		}
	}
	for i, c := range m.clients {
		assert.NoError(m.t, c.Close(), "client %d", i)
	}
	m.mustHoldNothing()
}

func TestKillsAndStepDownsOfTheServerBreakNoPromise(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "", "crash", "stepdown", "operationtime")
	f := newFixtureAt(t, s.URI)
	m := newTrial(f, f.clients(3, mongolock.TTL(1500*time.Millisecond)), 150*time.Millisecond)
	m.run(func() {
		for i, begin := 0, time.Now(); i < 6 && (i < 3 || time.Since(begin) < 25*time.Second); i++ {
			time.Sleep(500*time.Millisecond + rand.N(400*time.Millisecond)) // real: work between two faults
			s.Do("kill")
			time.Sleep(rand.N(600 * time.Millisecond)) // real: the server is down for a while
			s.Do("restart")
			time.Sleep(500*time.Millisecond + rand.N(400*time.Millisecond)) // real: work between two faults
			s.Do("stepdown?seconds=1")
			time.Sleep(time.Second) // it is primary again after that
		}
	})
	m.mustHaveKeptThePromise()
}

// cutOff cuts one client after the other off, for longer than its leases last.
func cutOff(t *testing.T) *trial {
	t.Helper()
	f := newFixture(t)
	var clients []*mongolock.Client
	var proxies []*faultproxy.Proxy
	for range 3 {
		c, proxy := f.behind(withRetries, mongolock.TTL(500*time.Millisecond))
		clients, proxies = append(clients, c), append(proxies, proxy)
	}
	m := newTrial(f, clients, 500*time.Millisecond)
	m.run(func() {
		for i, holds := 0, 0; i < 9 || holds < 30 && i < 60; i++ { // nine times; more if the machine is too busy for enough holds
			p := proxies[i%len(proxies)]
			if i%2 == 0 {
				p.Silence()
			} else {
				p.Cut()
			}
			time.Sleep(800 * time.Millisecond) // real: longer than the leases last
			p.Restore()
			time.Sleep(100 * time.Millisecond) // real: work between two faults
			var overlaps int
			if overlaps, _, holds = m.overlaps(); overlaps > 0 {
				return // the promise is broken: no more to see
			}
		}
	})
	return m
}

func TestClientsThatAreCutOffBreakNoPromise(t *testing.T) {
	t.Parallel()
	cutOff(t).mustHaveKeptThePromise()
}
