package filestore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostfile/disktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
)

// A stepped clock is the host's, which somebody sets.
type stepped struct{ by atomic.Int64 }

func (s *stepped) now() time.Time       { return time.Now().Add(time.Duration(s.by.Load())) }
func (s *stepped) step(d time.Duration) { s.by.Add(int64(d)) }

func onSteppedClock(t *testing.T) (*filestore.Store, *stepped) {
	clock := new(stepped)
	return open(t, disktest.InMemory(t), filestore.WithClock(clock.now)), clock
}

func rival(key string) store.Claim {
	c := mine(key)
	c.ID = "the rival's"
	return c
}

// This is what the package's documentation warns of.
func TestAStepForwardBeyondTheTTLEndsAHolderAtOnce(t *testing.T) {
	s, clock := onSteppedClock(t)
	first, err := s.Acquire(t.Context(), mine("k"))
	require.NoError(t, err)

	clock.step(2 * time.Hour)
	next, err := s.Acquire(t.Context(), rival("k"))
	require.NoError(t, err)
	assert.Greater(t, next.Token, first.Token, "a fence refuses the writes of the first holder")

	renewed := s.Renew(t.Context(), []store.Renewal{{Ref: mine("k").Ref, TTL: time.Hour}})
	require.ErrorIs(t, renewed[0].Err, store.ErrGone)
}

func TestAStepForwardShortensALeaseByNoMoreThanTheStep(t *testing.T) {
	s, clock := onSteppedClock(t)
	_, err := s.Acquire(t.Context(), mine("k")) // for an hour
	require.NoError(t, err)
	clock.step(40 * time.Minute)

	var held *store.HeldError
	_, err = s.Acquire(t.Context(), rival("k"))
	require.ErrorAs(t, err, &held)
	assert.InDelta(t, 20*time.Minute, held.Left(), float64(time.Minute))
}

func TestAStepBackMakesAHolderLastLongerAndNothingElse(t *testing.T) {
	s, clock := onSteppedClock(t)
	first, err := s.Acquire(t.Context(), mine("k")) // for an hour
	require.NoError(t, err)

	clock.step(-24 * time.Hour)
	_, err = s.Acquire(t.Context(), rival("k"))
	require.ErrorIs(t, err, store.ErrHeld)
	renewed := s.Renew(t.Context(), []store.Renewal{{Ref: mine("k").Ref, TTL: time.Hour}})
	require.NoError(t, renewed[0].Err)
	other, err := s.Acquire(t.Context(), mine("another"))
	require.NoError(t, err)
	assert.Greater(t, other.Token, first.Token, "tokens do not depend on the clock")

	clock.step(2 * time.Hour) // the holder's hour is over, but not by the time of its record
	_, err = s.Acquire(t.Context(), rival("k"))
	require.ErrorIs(t, err, store.ErrHeld)

	clock.step(24 * time.Hour)
	_, err = s.Acquire(t.Context(), rival("k"))
	require.NoError(t, err)
}
