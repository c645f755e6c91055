package mongolock_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// errNet is a fault that leaves the outcome of a call unknown.
var errNet = errors.New("connection reset")

// A hookedStore is a memstore that counts its calls and lets hooks replace them. A hook
// gets the call's arguments and a function that makes the call. Hooks may be exchanged at
// any time.
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
	release  func(ctx context.Context, r store.Ref, do func() (store.Ended, error)) (store.Ended, error)
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

func (b *hookedStore) Release(ctx context.Context, e store.Ending) (store.Ended, error) {
	do := func() (store.Ended, error) { return b.Store.Release(context.WithoutCancel(ctx), e) }
	if h := b.called("release").release; h != nil {
		return h(ctx, e.Ref, do)
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

// untilDone stands for a reply that never comes: it returns when the call's context ends.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// renewalsFail makes every renewal fail with err.
func renewalsFail(b *hookedStore, err error) {
	b.hook(func(h *hooks) {
		h.renew = func(_ context.Context, batch []store.Renewal, _ func() []store.Renewed) []store.Renewed {
			return allFail(batch, err)
		}
	})
}

func allFail(batch []store.Renewal, err error) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// slowRenewals lets every renewal take d, applied in the middle of it.
func slowRenewals(b *hookedStore, d time.Duration) {
	b.hook(func(h *hooks) {
		h.renew = func(_ context.Context, _ []store.Renewal, do func() []store.Renewed) []store.Renewed {
			time.Sleep(d / 2)
			defer time.Sleep(d / 2)
			return do()
		}
	})
}

// allHang makes every call hang until its context ends.
func allHang(b *hookedStore) {
	b.hook(func(h *hooks) {
		h.acquire = func(ctx context.Context, _ store.Claim, _ func() (store.Grant, error)) (store.Grant, error) {
			return store.Grant{}, untilDone(ctx)
		}
		h.renew = func(ctx context.Context, batch []store.Renewal, _ func() []store.Renewed) []store.Renewed {
			return allFail(batch, untilDone(ctx))
		}
		h.release = func(ctx context.Context, _ store.Ref, _ func() (store.Ended, error)) (store.Ended, error) {
			return store.Ended{}, untilDone(ctx)
		}
		h.transfer = func(ctx context.Context, _ store.Claim, _ func() (store.Grant, error)) (store.Grant, error) {
			return store.Grant{}, untilDone(ctx)
		}
		h.undo = func(ctx context.Context, _ store.Ref, _ func() (bool, error)) (bool, error) {
			return false, untilDone(ctx)
		}
		h.look = func(ctx context.Context, _ []string, _ func() ([]store.Status, error)) ([]store.Status, error) {
			return nil, untilDone(ctx)
		}
	})
}
