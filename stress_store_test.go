package mongolock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A faultyStore is one client's connection to the store. At random it delays, loses and
// fails calls, or applies them late.
type faultyStore struct {
	*hookedStore
	mu  sync.Mutex // protects rng
	rng *rand.Rand
}

func (m *faultyStore) roll(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *faultyStore) some(most time.Duration) time.Duration {
	return time.Duration(m.roll(int(most)))
}

// answerOrFault calls do, unless the request is lost, and returns its answer, unless a
// fault takes its place.
func answerOrFault[T any](ctx context.Context, m *faultyStore, do func() T) (answer T, fault error) {
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
		return do(), nil
	case roll < 75:
		if roll >= 65 {
			delay = stressTTL
		}
		if err := wait(delay); err != nil {
			return answer, errors.Join(err, store.ErrNotApplied)
		}
		answer = do()
		return answer, wait(delay)
	case roll < 82: // the reply is lost
		_ = do()
		return answer, errNet
	case roll < 86: // the reply never comes
		_ = do()
		return answer, untilDone(ctx)
	case roll < 90: // the request is lost
		return answer, errNet
	case roll < 95: // the request is known to be lost
		return answer, errors.Join(errNet, store.ErrNotApplied)
	}
	late := m.some(3 * stressTTL) // applied after the caller gave up
	go func() { time.Sleep(late); _ = do() }()
	return answer, errNet
}

type answered[T any] struct {
	value T
	err   error
}

func answerOf[T any](value T, err error) answered[T] { return answered[T]{value, err} }

// callOrFault is answerOrFault for a call that may return an error of its own.
func callOrFault[T any](ctx context.Context, m *faultyStore, do func() (T, error)) (none T, err error) {
	a, fault := answerOrFault(ctx, m, func() answered[T] { return answerOf(do()) })
	if fault != nil {
		return none, fault
	}
	return a.value, a.err
}

func newFaultyStore(mem *memstore.Store, r *grantChecker, seed uint64) *faultyStore {
	m := &faultyStore{hookedStore: newHookedStore(mem), rng: rand.New(rand.NewPCG(seed, 7))}
	claim := func(ctx context.Context, c store.Claim, do func() (store.Grant, error)) (store.Grant, error) {
		return callOrFault(ctx, m, func() (store.Grant, error) {
			g, err := do()
			if err == nil {
				r.grant(c, g)
			}
			return g, err
		})
	}
	m.hook(func(h *hooks) {
		h.acquire, h.transfer = claim, claim
		h.renew = func(ctx context.Context, batch []store.Renewal, do func() []store.Renewed) []store.Renewed {
			answers, fault := answerOrFault(ctx, m, do)
			if fault != nil {
				return allFail(batch, fault)
			}
			return answers
		}
		h.release = func(ctx context.Context, _ store.Ref, do func() (store.Ended, error)) (store.Ended, error) {
			return callOrFault(ctx, m, do)
		}
		h.undo = func(ctx context.Context, _ store.Ref, do func() (bool, error)) (bool, error) {
			return callOrFault(ctx, m, do)
		}
		h.look = func(ctx context.Context, _ []string, do func() ([]store.Status, error)) ([]store.Status, error) {
			return callOrFault(ctx, m, do)
		}
	})
	return m
}
