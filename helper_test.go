package mongolock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// errNet is a fault that leaves the outcome of a call unknown.
var errNet = errors.New("connection reset")

// A hookedStore is a memstore that counts its calls and lets hooks replace them. A hook
// gets the call's arguments and a function that makes the call. Hooks may be exchanged at
// any time. The type embeds the interface, not *memstore.Store, so that the engine does
// not take it for a store that answers at once.
type hookedStore struct {
	store.Store
	mem *memstore.Store

	mu    sync.Mutex // protects calls and hooks
	calls map[string]int
	hooks hooks
}

type hooks struct {
	acquire  func(ctx context.Context, c store.Claim, do func() (store.Grant, error)) (store.Grant, error)
	renew    func(ctx context.Context, batch []store.Renewal, do func() []store.Renewed) []store.Renewed
	release  func(ctx context.Context, r store.Ref, do func() (bool, error)) (bool, error)
	transfer func(ctx context.Context, to store.Claim, do func() (store.Grant, error)) (store.Grant, error)
	undo     func(ctx context.Context, claim store.Ref, do func() (bool, error)) (bool, error)
	look     func(ctx context.Context, keys []string, do func() ([]store.Status, error)) ([]store.Status, error)
}

func newHookedStore(mem *memstore.Store) *hookedStore {
	return &hookedStore{Store: mem, mem: mem, calls: make(map[string]int)}
}

func (b *hookedStore) Unwrap() store.Store { return b.Store }

// hook changes the hooks.
func (b *hookedStore) hook(f func(*hooks)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.hooks)
}

// count returns the number of calls of that name since the last reset.
func (b *hookedStore) count(call string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[call]
}

// total returns the number of all calls since the last reset.
func (b *hookedStore) total() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, calls := range b.calls {
		n += calls
	}
	return n
}

func (b *hookedStore) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.calls)
}

// called counts a call and returns the hooks.
func (b *hookedStore) called(name string) hooks {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[name]++
	return b.hooks
}

func (b *hookedStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	do := func() (store.Grant, error) { return b.Store.Acquire(context.WithoutCancel(ctx), c) }
	if h := b.called("acquire").acquire; h != nil {
		return h(ctx, c, do)
	}
	return do()
}

func (b *hookedStore) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	do := func() []store.Renewed { return b.Store.Renew(context.WithoutCancel(ctx), batch) }
	if h := b.called("renew").renew; h != nil {
		return h(ctx, batch, do)
	}
	return do()
}

func (b *hookedStore) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	do := func() (bool, error) { return b.Store.Release(context.WithoutCancel(ctx), r, keep) }
	if h := b.called("release").release; h != nil {
		return h(ctx, r, do)
	}
	return do()
}

func (b *hookedStore) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	do := func() (store.Grant, error) { return b.Store.Transfer(context.WithoutCancel(ctx), from, to) }
	if h := b.called("transfer").transfer; h != nil {
		return h(ctx, to, do)
	}
	return do()
}

func (b *hookedStore) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	do := func() (bool, error) { return b.Store.Undo(context.WithoutCancel(ctx), claim, from) }
	if h := b.called("undo").undo; h != nil {
		return h(ctx, claim, do)
	}
	return do()
}

func (b *hookedStore) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	do := func() ([]store.Status, error) { return b.Store.Look(context.WithoutCancel(ctx), keys) }
	if h := b.called("look").look; h != nil {
		return h(ctx, keys, do)
	}
	return do()
}

// A promptStore is a hookedStore that the engine takes for one that answers at once.
type promptStore struct{ *hookedStore }

func (promptStore) AnswersAtOnce() {}

// onBothPaths runs a test in two bubbles: on a store that the engine takes for one that
// answers at once, and on one whose calls may block.
func onBothPaths(t *testing.T, test func(t *testing.T, b *hookedStore, s store.Store)) {
	t.Run("prompt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newHookedStore(memstore.New())
			test(t, b, promptStore{b})
		})
	})
	t.Run("may block", func(t *testing.T) { whereCallsMayBlock(t, test) })
}

// whereCallsMayBlock runs a test in a bubble, on a store that does not claim to answer
// at once.
func whereCallsMayBlock(t *testing.T, test func(t *testing.T, b *hookedStore, s store.Store)) {
	synctest.Test(t, func(t *testing.T) {
		b := newHookedStore(memstore.New())
		test(t, b, b)
	})
}

// newClient returns a client that is closed when the test is over. The bubble then
// notices any goroutine that it left behind.
func newClient(t *testing.T, s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	t.Helper()
	opts = append([]mongolock.ClientOption{mongolock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	c, err := mongolock.NewWithStore(s, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
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
	if b, ok := s.(*hookedStore); ok {
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

// untilDone stands for a reply that never comes: it returns when the call's context ends.
// A store that answers at once is given no deadline; there the reply counts as lost.
func untilDone(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		return errNet
	}
	<-ctx.Done()
	return ctx.Err()
}

// A safeText is a text that several goroutines may write to.
type safeText struct {
	mu   sync.Mutex // protects text
	text strings.Builder
}

func (s *safeText) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *safeText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
