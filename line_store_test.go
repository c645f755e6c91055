package mongolock_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A hostileStore is one process's connection to a memstore: it counts each call, and a hook may
// delay, fail, hang or lose it.
type hostileStore struct {
	store.Store
	mem *memstore.Store

	mu    sync.Mutex
	calls map[string]int
	// hook makes the call by do, or not, and returns the error that the caller sees.
	hook           func(ctx context.Context, op, key string, do func()) error
	heard          func(n store.Notice) (drop bool, late time.Duration, copies int)
	cut            chan struct{} // closed to break the feed
	noFed          bool          // Watch fails
	trace          func(string)  // nil: none
	passes, silent atomic.Int64  // grants that pass one, and places that are taken out for others
}

func (b *hostileStore) tracef(format string, args ...any) {
	if b.trace != nil {
		b.trace(fmt.Sprintf(format, args...))
	}
}

func newHostile(mem *memstore.Store) *hostileStore {
	return &hostileStore{Store: mem, mem: mem, calls: map[string]int{}, cut: make(chan struct{})}
}

func (b *hostileStore) set(f func(ctx context.Context, op, key string, do func()) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hook = f
}

func (b *hostileStore) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.calls)
}

func (b *hostileStore) count(op string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[op]
}

func (b *hostileStore) total() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls {
		n += c
	}
	return n
}

func (b *hostileStore) all() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.calls)
}

func (b *hostileStore) call(ctx context.Context, op, key string, do func()) error {
	b.mu.Lock()
	b.calls[op]++
	h := b.hook
	b.mu.Unlock()
	if h == nil {
		do()
		return nil
	}
	return h(ctx, op, key, do)
}

func (b *hostileStore) Acquire(ctx context.Context, c store.Claim) (g store.Grant, err error) {
	if e := b.call(ctx, "acquire", c.Key, func() { g, err = b.mem.Acquire(context.WithoutCancel(ctx), c) }); e != nil {
		b.tracef("acquire %s %s pass %s: %v", c.Mode, c.Place, c.Pass, e)
		return store.Grant{}, e
	}
	if err == nil && c.Pass != "" {
		b.passes.Add(1)
	}
	b.tracef("acquire %s %s pass %s: %v %v", c.Mode, c.Place, c.Pass, g.Line, err)
	return g, err
}

func (b *hostileStore) Renew(ctx context.Context, batch []store.Renewal) (all []store.Renewed) {
	if e := b.call(ctx, "renew", batch[0].Key, func() { all = b.mem.Renew(context.WithoutCancel(ctx), batch) }); e != nil {
		return allFail(batch, e)
	}
	return all
}

func (b *hostileStore) Release(ctx context.Context, of store.Ending) (ended store.Ended, err error) {
	if e := b.call(ctx, "release", of.Key, func() { ended, err = b.mem.Release(context.WithoutCancel(ctx), of) }); e != nil {
		ended, err = store.Ended{}, e
	}
	b.tracef("release: %v, %v", ended, err)
	return ended, err
}

func (b *hostileStore) Leave(ctx context.Context, key string, p store.Place, silent bool) (s store.Status, err error) {
	if e := b.call(ctx, "leave", key, func() {
		if all, _ := b.mem.Look(context.WithoutCancel(ctx), []string{key}); silent && len(all[0].Line) > 0 && all[0].Line[0].Place == p {
			b.passes.Add(1)
			b.silent.Add(-1)
			b.tracef("removes the first in line, %s", p)
		}
		s, err = b.mem.Leave(context.WithoutCancel(ctx), key, p, silent)
	}); e != nil {
		b.tracef("leave %s: %v", p, e)
		return store.Status{}, e
	}
	if silent {
		b.silent.Add(1)
	}
	b.tracef("leave %s silent %v: holders %d line %v %v", p, silent, len(s.Holders), s.Waiting("", ""), err)
	return s, err
}

func (b *hostileStore) Transfer(ctx context.Context, from store.Ref, to store.Claim) (g store.Grant, err error) {
	if e := b.call(ctx, "transfer", to.Key, func() { g, err = b.mem.Transfer(context.WithoutCancel(ctx), from, to) }); e != nil {
		return store.Grant{}, e
	}
	return g, err
}

func (b *hostileStore) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (ok bool, err error) {
	if e := b.call(ctx, "undo", claim.Key, func() { ok, err = b.mem.Undo(context.WithoutCancel(ctx), claim, from) }); e != nil {
		return false, e
	}
	return ok, err
}

func (b *hostileStore) Break(ctx context.Context, r store.Ref, reason string, now bool) (err error) {
	if e := b.call(ctx, "break", r.Key, func() { err = b.mem.Break(context.WithoutCancel(ctx), r, reason, now) }); e != nil {
		return e
	}
	return err
}

func (b *hostileStore) Look(ctx context.Context, keys []string) (all []store.Status, err error) {
	if e := b.call(ctx, "look", keys[0], func() { all, err = b.mem.Look(context.WithoutCancel(ctx), keys) }); e != nil {
		return nil, e
	}
	b.tracef("look: %v", all)
	return all, err
}

func (b *hostileStore) Notify(ctx context.Context, all ...store.Notice) (err error) {
	if e := b.call(ctx, "notify", all[0].Key, func() { err = b.mem.Notify(context.WithoutCancel(ctx), all...) }); e != nil {
		return e
	}
	b.tracef("notify %v: %v", all, err)
	return err
}

func (b *hostileStore) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		b.mu.Lock()
		b.calls["watch"]++
		cut, broken := b.cut, b.noFed
		b.mu.Unlock()
		if broken {
			yield(store.Notice{}, errNet)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-cut:
				cancel()
			case <-ctx.Done():
			}
		}()
		for n := range b.mem.Watch(ctx, of) {
			b.mu.Lock()
			f := b.heard
			b.mu.Unlock()
			copies := 1
			if f != nil && n != (store.Notice{}) {
				drop, late, times := f(n)
				if drop {
					continue
				}
				time.Sleep(late)
				copies = max(1, times)
			}
			b.tracef("hears %v", n)
			for range copies {
				if !yield(n, nil) {
					return
				}
			}
		}
		select {
		case <-cut:
			yield(store.Notice{}, errNet)
		default:
		}
	}
}

func (b *hostileStore) Unwrap() store.Store { return b.mem }

// breakFeed ends the feed, and refuses it until it is repaired.
func (b *hostileStore) breakFeed(broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noFed = broken
	if broken {
		close(b.cut)
		b.cut = make(chan struct{})
	}
}

// trips makes each call take least to 3*least, twice.
func trips(least time.Duration) func(ctx context.Context, op, key string, do func()) error {
	return func(_ context.Context, _, _ string, do func()) error {
		time.Sleep(least + rand.N(2*least))
		do()
		time.Sleep(least + rand.N(2*least))
		return nil
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
