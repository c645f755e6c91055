package memstore_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func exclusive(key, id string) store.Ref {
	return store.Ref{Key: key, ID: id, Mode: store.Exclusive}
}

func claim(key, id string) store.Claim {
	return store.Claim{Ref: exclusive(key, id), Limit: 1, TTL: time.Minute}
}

func TestAModeThatNobodyKnowsIsRefusedWithoutATrace(t *testing.T) {
	s := memstore.New()
	for _, mode := range []store.Mode{"", "read"} {
		c := claim("k", "id")
		c.Mode = mode
		_, acquire := s.Acquire(t.Context(), c)
		_, release := s.Release(t.Context(), c.Ref, 0)
		_, transfer := s.Transfer(t.Context(), exclusive("k", "from"), c)
		_, undo := s.Undo(t.Context(), c.Ref, nil)
		for op, err := range map[string]error{
			"Acquire":  acquire,
			"Renew":    s.Renew(t.Context(), []store.Renewal{{Ref: c.Ref, TTL: c.TTL}})[0].Err,
			"Release":  release,
			"Transfer": transfer,
			"Undo":     undo,
			"Break":    s.Break(t.Context(), c.Ref, "", true),
		} {
			if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, store.ErrNotApplied) {
				t.Errorf("%s in mode %q: %v", op, mode, err)
			}
		}
	}
}

func TestAnUndoneClaimIsRefusedWhenItArrivesLate(t *testing.T) {
	s := memstore.New()
	late := claim("k", "late")
	if settled, err := s.Undo(t.Context(), late.Ref, nil); !settled || err != nil {
		t.Fatalf("Undo: settled %v, %v", settled, err)
	}
	if _, err := s.Acquire(t.Context(), late); !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("Acquire after its Undo: %v", err)
	}
	if _, err := s.Acquire(t.Context(), claim("k", "from")); err != nil {
		t.Fatalf("the key is not free: %v", err)
	}
	if _, err := s.Transfer(t.Context(), exclusive("k", "from"), late); !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("Transfer after its Undo: %v", err)
	}
}

func TestTheMemoryOfUndoneClaimsIsBounded(t *testing.T) {
	s := memstore.New()
	const many = 100_000
	for i := range many {
		s.Undo(t.Context(), exclusive("k", strconv.Itoa(i)), nil)
	}
	if _, err := s.Acquire(t.Context(), claim("k", strconv.Itoa(many-1))); err == nil {
		t.Error("the last one undone was forgotten")
	}
	if _, err := s.Acquire(t.Context(), claim("k", "0")); err != nil {
		t.Errorf("the first of %d is still remembered: %v", many, err)
	}
}

func TestTransferStaysOnItsKey(t *testing.T) {
	s := memstore.New()
	if _, err := s.Acquire(t.Context(), claim("k", "from")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Transfer(t.Context(), exclusive("k", "from"), claim("other", "to")); !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("Transfer to another key: %v", err)
	}
}

func TestAClockAnHourAwayChangesNothing(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		s := memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(off) }))
		g, err := s.Acquire(t.Context(), claim("k", "a"))
		if err != nil || g.Left != time.Minute {
			t.Errorf("clock off by %v: left %v, %v", off, g.Left, err)
		}
		held, ok := errors.AsType[*store.HeldError](second(s.Acquire(t.Context(), claim("k", "b"))))
		if !ok || held.Left() > time.Minute || held.Left() < time.Second {
			t.Errorf("clock off by %v: the rival was told %v", off, held)
		}
	}
}

func TestAPairCostsOneAllocation(t *testing.T) {
	s := memstore.New()
	c := claim("k", "id")
	allocs := testing.AllocsPerRun(100, func() { pair(t, s, c) })
	if allocs > 1 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkPair(b *testing.B) {
	s := memstore.New()
	c := claim("k", "id")
	b.ReportAllocs()
	for b.Loop() {
		pair(b, s, c)
	}
}

func pair(t testing.TB, s *memstore.Store, c store.Claim) {
	if _, err := s.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Release(t.Context(), c.Ref, 0); err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }
