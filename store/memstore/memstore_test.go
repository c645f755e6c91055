package memstore_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func exclusive(key, id string) store.Ref {
	return store.Ref{Key: key, ID: id, Mode: store.Exclusive}
}

func claim(key, id string) store.Claim {
	return store.Claim{Ref: exclusive(key, id), Limit: 1, TTL: time.Minute}
}

func TestAnUnknownModeIsRefusedWithoutATrace(t *testing.T) {
	s := memstore.New()
	for _, mode := range []store.Mode{"", "read"} {
		c := claim("k", "id")
		c.Mode = mode
		_, acquire := s.Acquire(t.Context(), c)
		_, transfer := s.Transfer(t.Context(), exclusive("k", "from"), c)
		_, undo := s.Undo(t.Context(), c.Ref, nil)
		_, release := s.Release(t.Context(), store.ReleaseRequest{Ref: c.Ref})
		for op, err := range map[string]error{
			"Acquire":  acquire,
			"Renew":    s.Renew(t.Context(), []store.Renewal{{Ref: c.Ref, TTL: c.TTL}})[0].Err,
			"Release":  release,
			"Transfer": transfer,
			"Undo":     undo,
			"Break":    s.Break(t.Context(), c.Ref, "", true),
		} {
			require.ErrorIs(t, err, errors.ErrUnsupported, "%s in mode %q", op, mode)
			require.ErrorIs(t, err, store.ErrNotApplied, "%s in mode %q", op, mode)
		}
	}
}

func TestAnUndoneClaimIsRefusedWhenItArrivesLate(t *testing.T) {
	s := memstore.New()
	late := claim("k", "late")
	settled, err := s.Undo(t.Context(), late.Ref, nil)
	require.NoError(t, err)
	require.True(t, settled)

	_, err = s.Acquire(t.Context(), late)
	assert.ErrorIs(t, err, store.ErrNotApplied, "Acquire after its Undo")
	_, err = s.Acquire(t.Context(), claim("k", "from"))
	require.NoError(t, err, "the key is not free")
	_, err = s.Transfer(t.Context(), exclusive("k", "from"), late)
	assert.ErrorIs(t, err, store.ErrNotApplied, "Transfer after its Undo")
}

func TestTheMemoryOfUndoneClaimsIsBounded(t *testing.T) {
	s := memstore.New()
	const many = 100_000
	for i := range many {
		s.Undo(t.Context(), exclusive("k", strconv.Itoa(i)), nil)
	}
	_, err := s.Acquire(t.Context(), claim("k", strconv.Itoa(many-1)))
	require.ErrorIs(t, err, store.ErrNotApplied, "the claim undone last was forgotten")
	_, err = s.Acquire(t.Context(), claim("k", "0"))
	require.NoError(t, err, "the first of %d is still remembered", many)
}

func TestATransferStaysOnItsKey(t *testing.T) {
	s := memstore.New()
	_, err := s.Acquire(t.Context(), claim("k", "from"))
	require.NoError(t, err)
	_, err = s.Transfer(t.Context(), exclusive("k", "from"), claim("other", "to"))
	assert.ErrorIs(t, err, store.ErrNotApplied)
}

func TestAClockAnHourAwayChangesNothing(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		s := memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(off) }))
		g, err := s.Acquire(t.Context(), claim("k", "a"))
		require.NoError(t, err, "clock off by %v", off)
		assert.Equal(t, time.Minute, g.Left, "clock off by %v", off)

		var held *store.HeldError
		_, err = s.Acquire(t.Context(), claim("k", "b"))
		require.ErrorAs(t, err, &held, "clock off by %v", off)
		assert.LessOrEqual(t, held.Left(), time.Minute, "clock off by %v", off)
		assert.GreaterOrEqual(t, held.Left(), time.Second, "clock off by %v", off)
	}
}

func TestANilOptionOrClockPanicsWithItsName(t *testing.T) {
	assert.PanicsWithValue(t, "memstore: a nil Option", func() { memstore.New(nil) })
	assert.PanicsWithValue(t, "memstore: WithClock(nil): must not be nil", func() { memstore.WithClock(nil) })
}

func TestAPairCostsOneAllocation(t *testing.T) {
	s := memstore.New()
	c := claim("k", "id")
	ctx := context.Background() // t.Context() is not free either
	allocs := testing.AllocsPerRun(100, func() { pair(ctx, t, s, c) })
	assert.LessOrEqual(t, allocs, 1.0, "the answer of the release")
}

func BenchmarkPair(b *testing.B) {
	s := memstore.New()
	c := claim("k", "id")
	b.ReportAllocs()
	for b.Loop() {
		pair(b.Context(), b, s, c)
	}
}

func pair(ctx context.Context, t testing.TB, s *memstore.Store, c store.Claim) {
	if _, err := s.Acquire(ctx, c); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Release(ctx, store.ReleaseRequest{Ref: c.Ref}); err != nil {
		t.Fatal(err)
	}
}

// Others' notices would fill the backlog of a watcher.
func TestAWatcherHearsOnlyWhatIsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var heard []store.Notice
		go func() {
			for n := range s.Watch(t.Context(), store.Audience{Address: "here", Topics: []string{"leader"}}) {
				heard = append(heard, n)
			}
		}()
		synctest.Wait()
		mine, ofTopic := store.Notice{Topic: store.TopicLocks, To: "here"}, store.Notice{Topic: "leader"}
		require.NoError(t, s.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, To: "there"}, mine,
			store.Notice{Topic: "paths"}, ofTopic, store.Notice{Topic: "leader", To: "there"}))
		synctest.Wait()
		assert.Equal(t, []store.Notice{{}, mine, ofTopic}, heard)
	})
}
