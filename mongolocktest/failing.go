package mongolocktest

import (
	"context"
	"iter"
	"sync"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// failing is a memstore whose calls can be made to fail. The memstore is not
// embedded, so that a method added to store.Store cannot be forgotten here. What is found by Unwrap
// does not fail, so all optional methods but the feed's stand here too.
type failing struct {
	mem *memstore.Store

	mu   sync.Mutex      // protects all that follows
	err  error           // the answer of every call; nil if calls succeed
	lost map[string]bool // by ID
}

// Unwrap lets store.FeedOf find the feed: wake-ups are hints and do not fail.
func (f *failing) Unwrap() store.Store { return f.mem }

func (f *failing) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failing) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// lose removes one acquisition. Its renewal answers ErrGone even while calls fail.
func (f *failing) lose(key, id string) {
	ctx := context.Background()
	if seen, err := f.mem.Look(ctx, []string{key}); err == nil {
		ref := store.Ref{Key: key, ID: id, Mode: seen[0].Mode}
		_, _ = f.mem.Release(ctx, store.Ending{Ref: ref}) // ErrGone: it is gone already
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost == nil {
		f.lost = make(map[string]bool)
	}
	f.lost[id] = true
}

func (f *failing) isLost(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost[id]
}

func (f *failing) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := f.failure(); err != nil {
		return store.Grant{}, err
	}
	return f.mem.Acquire(ctx, c)
}

func (f *failing) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	err := f.failure()
	if err == nil {
		return f.mem.Renew(ctx, batch)
	}
	answers := make([]store.Renewed, len(batch))
	for i, r := range batch {
		answers[i].Err = err
		if f.isLost(r.ID) {
			answers[i].Err = store.ErrGone
		}
	}
	return answers
}

func (f *failing) Release(ctx context.Context, e store.Ending) (store.Ended, error) {
	if err := f.failure(); err != nil {
		return store.Ended{}, err
	}
	return f.mem.Release(ctx, e)
}

func (f *failing) Leave(ctx context.Context, key string, p store.Place, silent bool) (store.Status, error) {
	if err := f.failure(); err != nil {
		return store.Status{}, err
	}
	return f.mem.Leave(ctx, key, p, silent)
}

func (f *failing) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if err := f.failure(); err != nil {
		return store.Grant{}, err
	}
	return f.mem.Transfer(ctx, from, to)
}

func (f *failing) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := f.failure(); err != nil {
		return false, err
	}
	return f.mem.Undo(ctx, claim, from)
}

func (f *failing) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if err := f.failure(); err != nil {
		return err
	}
	return f.mem.Break(ctx, r, reason, now)
}

func (f *failing) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if err := f.failure(); err != nil {
		return nil, err
	}
	return f.mem.Look(ctx, keys)
}

func (f *failing) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	if err := f.failure(); err != nil {
		return func(yield func(store.Status, error) bool) { yield(store.Status{}, err) }
	}
	return f.mem.List(ctx, prefix)
}
