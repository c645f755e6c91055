package mongolock_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// errNet is a fault of which nobody knows what it left behind.
var errNet = errors.New("connection reset")

// A bent store is a memstore whose calls are counted, and can be bent: a hook gets
// the call and what would do it. Hooks may be exchanged at any time. It embeds
// the interface, so that the engine does not take it for one that answers at once.
type bent struct {
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

func bend(mem *memstore.Store) *bent {
	return &bent{Store: mem, mem: mem, calls: make(map[string]int)}
}

func (b *bent) Unwrap() store.Store { return b.Store }

// bend changes the hooks.
func (b *bent) bend(f func(*hooks)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.hooks)
}

// count is how many calls of that name there were, since the last reset.
func (b *bent) count(call string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[call]
}

// total is count over all calls.
func (b *bent) total() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, calls := range b.calls {
		n += calls
	}
	return n
}

func (b *bent) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.calls)
}

func (b *bent) called(name string) hooks {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[name]++
	return b.hooks
}

func (b *bent) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	do := func() (store.Grant, error) { return b.Store.Acquire(context.WithoutCancel(ctx), c) }
	if h := b.called("acquire").acquire; h != nil {
		return h(ctx, c, do)
	}
	return do()
}

func (b *bent) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	do := func() []store.Renewed { return b.Store.Renew(context.WithoutCancel(ctx), batch) }
	if h := b.called("renew").renew; h != nil {
		return h(ctx, batch, do)
	}
	return do()
}

func (b *bent) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	do := func() (bool, error) { return b.Store.Release(context.WithoutCancel(ctx), r, keep) }
	if h := b.called("release").release; h != nil {
		return h(ctx, r, do)
	}
	return do()
}

func (b *bent) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	do := func() (store.Grant, error) { return b.Store.Transfer(context.WithoutCancel(ctx), from, to) }
	if h := b.called("transfer").transfer; h != nil {
		return h(ctx, to, do)
	}
	return do()
}

func (b *bent) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	do := func() (bool, error) { return b.Store.Undo(context.WithoutCancel(ctx), claim, from) }
	if h := b.called("undo").undo; h != nil {
		return h(ctx, claim, do)
	}
	return do()
}

func (b *bent) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	do := func() ([]store.Status, error) { return b.Store.Look(context.WithoutCancel(ctx), keys) }
	if h := b.called("look").look; h != nil {
		return h(ctx, keys, do)
	}
	return do()
}

// prompt is a bent store that answers at once.
type prompt struct{ *bent }

func (prompt) AnswersAtOnce() {}

// onBothPaths runs a test in two bubbles: on a store that the engine takes for
// one that answers at once, and on one that it does not.
func onBothPaths(t *testing.T, test func(t *testing.T, b *bent, s store.Store)) {
	t.Run("prompt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := bend(memstore.New())
			test(t, b, prompt{b})
		})
	})
	t.Run("apart", func(t *testing.T) { whereCallsMayBlock(t, test) })
}

// whereCallsMayBlock runs a test in a bubble, on a store that does not claim to answer
// at once.
func whereCallsMayBlock(t *testing.T, test func(t *testing.T, b *bent, s store.Store)) {
	synctest.Test(t, func(t *testing.T) {
		b := bend(memstore.New())
		test(t, b, b)
	})
}

// newClient is a client that is closed when the test is over; the bubble then
// sees whether it left a goroutine.
func newClient(t *testing.T, s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	t.Helper()
	opts = append([]mongolock.ClientOption{mongolock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	c, err := mongolock.NewWithStore(s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func acquire(t *testing.T, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	t.Helper()
	lease, err := c.Acquire(t.Context(), key, opts...)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", key, err)
	}
	return lease
}

func release(t *testing.T, l *mongolock.Lease) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Errorf("Release of %q: %v", l.Key(), err)
	}
}

// mustBeHeld fails unless the key is taken at this moment, as others see it.
func mustBeHeld(t *testing.T, s store.Store, key string) {
	t.Helper()
	if isFree(t, s, key) {
		t.Errorf("%q is free", key)
	}
}

func mustBeFree(t *testing.T, s store.Store, key string) {
	t.Helper()
	if !isFree(t, s, key) {
		t.Errorf("%q is held", key)
	}
}

func isFree(t *testing.T, s store.Store, key string) bool {
	t.Helper()
	if b, ok := s.(*bent); ok {
		s = b.Store
	}
	all, err := s.Look(context.WithoutCancel(t.Context()), []string{key})
	if err != nil {
		t.Fatal(err)
	}
	return all[0].Free()
}

func mustMatch(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %q does not match %q", err, target)
		}
	}
}

func mustNotMatch(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("error %q matches %q", err, target)
		}
	}
}

// isOver reports whether a Done channel is closed, once all goroutines had their turn.
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

// A result is what an Acquire in the background came to.
type result struct {
	lease *mongolock.Lease
	err   error
	when  time.Time
}

func inBackground(ctx context.Context, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) <-chan result {
	ch := make(chan result, 1)
	go func() {
		l, err := c.Acquire(ctx, key, opts...)
		ch <- result{l, err, time.Now()}
	}()
	return ch
}

// untilDone is a reply that never comes. A store that answers at once is given no
// deadline: there it is a reply that was lost.
func untilDone(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		return errNet
	}
	<-ctx.Done()
	return ctx.Err()
}
