package mongolock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

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
