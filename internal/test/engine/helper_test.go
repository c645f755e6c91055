package engine_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// errNet is a fault that leaves the outcome of a call unknown.
var errNet = errors.New("connection reset")

var newClient = lab.Client

// connect returns a silent client that the test closes itself.
func connect(s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	quiet := mongolock.WithLogger(slog.New(slog.DiscardHandler))
	client, err := mongolock.NewWithStore(s, append([]mongolock.ClientOption{quiet}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func acquire(t *testing.T, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	t.Helper()
	lease, err := c.Acquire(t.Context(), key, opts...)
	require.NoError(t, err, "Acquire(%q)", key)
	return lease
}

func release(t *testing.T, l *mongolock.Lease) {
	t.Helper()
	assert.NoError(t, l.Release(), "Release of %q", l.Key())
}

// mustBeHeld fails unless other clients see the key as held at this moment.
func mustBeHeld(t *testing.T, s store.Store, key string) {
	t.Helper()
	assert.False(t, isFree(t, s, key), "%q is free", key)
}

func mustBeFree(t *testing.T, s store.Store, key string) {
	t.Helper()
	assert.True(t, isFree(t, s, key), "%q is held", key)
}

func isFree(t *testing.T, s store.Store, key string) bool {
	t.Helper()
	if b, ok := s.(*lab.Store); ok {
		s = b.Store
	}
	all, err := s.Look(context.WithoutCancel(t.Context()), []string{key})
	require.NoError(t, err)
	return all[0].Free()
}

// isOver reports whether a Done channel is closed once every goroutine of the bubble
// waits.
func isOver(done <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// tookBetween fails unless the time since start lies within the bounds.
func tookBetween(t *testing.T, start time.Time, least, most time.Duration) {
	t.Helper()
	if took := time.Since(start); took < least || took > most {
		t.Errorf("took %v, want %v to %v", took, least, most)
	}
}

// A result is what an Acquire in the background returned, and when.
type result struct {
	lease *mongolock.Lease
	err   error
	when  time.Time
}

// inBackground calls Acquire in a goroutine of its own.
func inBackground(ctx context.Context, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) <-chan result {
	ch := make(chan result, 1)
	go func() {
		l, err := c.Acquire(ctx, key, opts...)
		ch <- result{l, err, time.Now()}
	}()
	return ch
}

// trips makes each call take least to 3*least, twice.
func trips(least time.Duration) lab.Hook {
	return func(_ context.Context, call *lab.Call) error {
		time.Sleep(least + rand.N(2*least))
		defer func() { time.Sleep(least + rand.N(2*least)) }()
		return call.Do()
	}
}

// standAs puts a place of a dead process into the line of k, in that mode, and returns it.
func standAs(t *testing.T, mem *memstore.Store, m store.Mode, limit int, id, address string) store.Place {
	t.Helper()
	claim := store.Claim{Ref: store.Ref{Key: "k", ID: id, Mode: m}, Limit: limit, TTL: time.Minute, Owner: "dead"}
	claim.Place = store.NewPlace(m, limit, 1, address)
	_, err := mem.Acquire(t.Context(), claim)
	require.ErrorIs(t, err, store.ErrHeld)
	return claim.Place
}
