package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

var (
	stressSeeds = flag.Int("stress.seeds", 300, "seeds of the randomised test")
	stressFirst = flag.Uint64("stress.first", 1, "the first of these seeds")
)

const (
	stressTTL    = 2 * time.Second
	stressMargin = stressTTL / 10
)

// A grantChecker sees every grant at the moment when the store makes it, and every lease
// that a worker gets.
type grantChecker struct {
	t    *testing.T
	seed uint64

	mu      sync.Mutex
	granted map[string]store.Claim // the last claim of each key
	tokens  map[string]int64
	leases  map[string][]*checkedLease // of each key, since its last grant
}

// A checkedLease is a lease of which the checker knows when it ended.
type checkedLease struct {
	*mongolock.Lease
	mu       sync.Mutex
	ended    time.Time
	released bool
}

func (r *grantChecker) errorf(format string, args ...any) {
	r.t.Errorf("seed %d: %s", r.seed, fmt.Sprintf(format, args...))
}

// grant checks that no other lease of the key is live at this moment, and that a holder
// that lost one was told at least one margin ago.
func (r *grantChecker) grant(c store.Claim, g store.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.Token <= r.tokens[c.Key] {
		r.errorf("token %d of %q after %d", g.Token, c.Key, r.tokens[c.Key])
	}
	r.tokens[c.Key], r.granted[c.Key] = g.Token, c
	for _, l := range r.leases[c.Key] {
		if l.ID() == c.ID {
			continue
		}
		err := l.Err()
		l.mu.Lock()
		ended, released := l.ended, l.released
		l.mu.Unlock()
		switch {
		case err == nil:
			r.errorf("%q granted while a lease of it is live", c.Key)
		case released || errors.Is(err, mongolock.ErrDetached):
		case ended.IsZero() || time.Since(ended) < stressMargin:
			r.errorf("%q granted %v after its holder was told (%v), want at least %v", c.Key, time.Since(ended), err, stressMargin)
		}
	}
	r.leases[c.Key] = nil
}

// watch adds a lease that a worker got.
func (r *grantChecker) watch(l *mongolock.Lease) *checkedLease {
	w := &checkedLease{Lease: l}
	r.mu.Lock()
	if last := r.granted[l.Key()]; last.ID != l.ID() && l.Err() == nil {
		r.errorf("a lease of %q is live though a later one was granted", l.Key())
	}
	r.leases[l.Key()] = append(r.leases[l.Key()], w)
	r.mu.Unlock()
	go func() {
		<-l.Done()
		w.mu.Lock()
		w.ended = time.Now()
		w.mu.Unlock()
	}()
	return w
}

func (w *checkedLease) release() error {
	w.mu.Lock()
	w.released = true
	w.mu.Unlock()
	return w.Release()
}

// A worker acquires, holds, releases and abandons keys at random.
type worker struct {
	r       *grantChecker
	rng     *rand.Rand
	clients []*mongolock.Client
	tickets chan string
}

func (w *worker) some(most time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(most)))
}

func (w *worker) work(t *testing.T, steps int) {
	for range steps {
		c := w.clients[w.rng.IntN(len(w.clients))]
		ctx, cancel := context.WithTimeout(t.Context(), w.some(3*stressTTL))
		l, err := w.take(ctx, c, fmt.Sprint("key-", w.rng.IntN(3)))
		switch {
		case (l == nil) == (err == nil):
			w.r.errorf("a call returned %v and %v", l, err)
		case err == nil:
			w.hold(t, w.r.watch(l))
		}
		cancel()
		time.Sleep(w.some(100 * time.Millisecond))
	}
}

func (w *worker) take(ctx context.Context, c *mongolock.Client, key string) (*mongolock.Lease, error) {
	switch w.rng.IntN(8) {
	case 0:
		return c.TryAcquire(ctx, key)
	case 1:
		return c.Acquire(ctx, key, mongolock.MaxWait(w.some(stressTTL)+1))
	case 2:
		return c.Acquire(ctx, key, mongolock.NoRenewal())
	case 3:
		return c.Acquire(ctx, key, mongolock.MaxHold(w.some(stressTTL)+1))
	case 4:
		select {
		case ticket := <-w.tickets:
			return c.Resume(ctx, ticket)
		default:
		}
	}
	return c.Acquire(ctx, key)
}

func (w *worker) hold(t *testing.T, l *checkedLease) {
	most := 30 * time.Millisecond
	if w.rng.IntN(4) == 0 {
		most = 2 * stressTTL
	}
	select {
	case <-time.After(w.some(most)):
	case <-l.Done():
		time.Sleep(w.some(2 * stressMargin)) // the work takes a while to stop
	}
	switch w.rng.IntN(10) {
	case 0:
		if ticket, err := l.Detach(t.Context()); err == nil {
			select {
			case w.tickets <- ticket:
			default:
			}
			return
		}
	case 1:
		_ = l.Renew(t.Context())
	case 2:
		go l.release()
	}
	for range 1 + w.rng.IntN(2) {
		_ = l.release()
	}
}

func TestNoSequenceOfFaultsBreaksThePromise(t *testing.T) {
	for i := range *stressSeeds {
		seed := *stressFirst + uint64(i)
		synctest.Test(t, func(t *testing.T) { stress(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d (again: -stress.seeds 1 -stress.first %d)", seed, seed)
		}
	}
}

func stress(t *testing.T, seed uint64) {
	r := &grantChecker{
		t: t, seed: seed,
		granted: make(map[string]store.Claim), tokens: make(map[string]int64), leases: make(map[string][]*checkedLease),
	}
	shift := time.Duration(seed%3) * time.Hour
	mem := memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(shift) }))
	var clients []*mongolock.Client
	for i := range uint64(4) {
		opts := []mongolock.ClientOption{mongolock.TTL(stressTTL)}
		if (seed+i)%2 == 0 {
			opts = append(opts, mongolock.WithoutFeed())
		}
		clients = append(clients, newClient(t, newFaultyStore(mem, r, seed*10+i), opts...))
	}
	tickets := make(chan string, 10)
	var wg sync.WaitGroup
	for i := range uint64(8) {
		w := &worker{r: r, rng: rand.New(rand.NewPCG(seed, 100+i)), clients: clients, tickets: tickets}
		wg.Go(func() { w.work(t, 12) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		r.errorf("workers are stuck")
		return
	}
	time.Sleep(4*stressTTL + 10*time.Second) // until what is applied late has expired
	for _, key := range []string{"key-0", "key-1", "key-2"} {
		if !isFree(t, mem, key) {
			r.errorf("%q is held though nobody has a lease of it", key)
		}
	}
	start := time.Now()
	for _, c := range clients {
		_ = c.Close()
	}
	if took := time.Since(start); took > 4*(stressMargin+5*time.Second) {
		r.errorf("closing took %v", took)
	}
}

// A faultyStore is one client's connection to the store. At random it delays, loses and
// fails calls, or applies them late.
type faultyStore struct {
	*lab.Store
	mu  sync.Mutex // protects rng
	rng *rand.Rand
}

// A grantedStore tells the checker of each grant, whether or not its answer arrives.
type grantedStore struct {
	*memstore.Store
	checker *grantChecker
}

func (s grantedStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.checker.grant(c, g)
	}
	return g, err
}

func (s grantedStore) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	g, err := s.Store.Transfer(ctx, from, to)
	if err == nil {
		s.checker.grant(to, g)
	}
	return g, err
}

func newFaultyStore(mem *memstore.Store, r *grantChecker, seed uint64) *faultyStore {
	m := &faultyStore{Store: lab.New(grantedStore{mem, r}), rng: rand.New(rand.NewPCG(seed, 7))}
	for _, op := range []lab.Op{lab.Acquire, lab.Transfer, lab.Renew, lab.Release, lab.Undo, lab.Look} {
		m.On(op, m.fault)
	}
	return m
}

func (m *faultyStore) roll(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *faultyStore) some(most time.Duration) time.Duration {
	return time.Duration(m.roll(int(most)))
}

// fault makes the call, unless the request is lost, and answers it, unless a fault takes the answer's place.
func (m *faultyStore) fault(ctx context.Context, call *lab.Call) error {
	wait := func(most time.Duration) error {
		select {
		case <-time.After(m.some(most)):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	delay := 30 * time.Millisecond
	switch roll := m.roll(100); {
	case roll < 40:
		return call.Do()
	case roll < 75:
		if roll >= 65 {
			delay = stressTTL
		}
		if err := wait(delay); err != nil {
			return errors.Join(err, store.ErrNotApplied)
		}
		_ = call.Do()
		return wait(delay)
	case roll < 82: // the reply is lost
		_ = call.Do()
		return errNet
	case roll < 86: // the reply never comes
		_ = call.Do()
		return lab.Hang(ctx, call)
	case roll < 90: // the request is lost
		return errNet
	case roll < 95: // the request is known to be lost
		return errors.Join(errNet, store.ErrNotApplied)
	}
	call.Late(m.some(3 * stressTTL)) // applied after the caller gave up
	return errNet
}
