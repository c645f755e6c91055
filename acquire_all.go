package mongolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Leases are what AcquireAll grants: one lease for each key, in the order in which the
// keys were given. They may be used one by one as well.
type Leases []*Lease

// AcquireAll acquires several keys: all of them or none. It asks for one after the
// other in byte order, whatever their order in keys, so that callers with keys in
// common cannot wait for each other in a circle. While it waits for one key it holds
// those before: ask for few keys, and hold them for a short time.
//
// If a key is not granted, or a lease is lost meanwhile, AcquireAll gives back what was
// granted so far, and the error says which key and why. The options apply to each key;
// a MaxWait applies to all keys together.
func AcquireAll(ctx context.Context, l Locker, keys []string, opts ...AcquireOption) (Leases, error) {
	sorted, err := usableKeys(l, keys)
	if err != nil {
		return nil, err
	}
	patience := patienceIn(opts)
	leases := make(Leases, 0, len(sorted))
	held := ctx // ends with ctx, and with every lease granted so far
	for _, key := range sorted {
		lease, err := l.Acquire(held, key, patience.options(opts)...)
		if err == nil {
			leases = append(leases, lease)
			held = lease.Context(held)
			continue
		}
		if lost := leases.Err(); lost != nil && ctx.Err() == nil {
			err = fmt.Errorf("mongolock: acquire all: while waiting for %q: %w", key, lost)
		}
		return nil, errors.Join(err, leases.giveUp())
	}
	if lost := leases.Err(); lost != nil {
		return nil, errors.Join(fmt.Errorf("mongolock: acquire all: %w", lost), leases.giveUp())
	}
	slices.SortFunc(leases, func(a, b *Lease) int {
		return slices.Index(keys, a.key) - slices.Index(keys, b.key)
	})
	return leases, nil
}

// usableKeys is keys in order, or an error if one is bad or given twice.
func usableKeys(l Locker, keys []string) ([]string, error) {
	switch {
	case l == nil:
		return nil, errors.New("mongolock: AcquireAll: the locker is nil")
	case len(keys) == 0:
		return nil, errors.New("mongolock: AcquireAll: no keys")
	}
	sorted := slices.Sorted(slices.Values(keys))
	for i, key := range sorted {
		if err := checkText("key", key, 1, maxKey); err != nil {
			return nil, err
		}
		if i > 0 && key == sorted[i-1] {
			return nil, fmt.Errorf("mongolock: AcquireAll: the key %q is given twice", key)
		}
	}
	return sorted, nil
}

// A patience is how long AcquireAll waits for all keys together.
type patience struct {
	limited bool
	until   time.Time
}

func patienceIn(opts []AcquireOption) patience {
	t := terms{mode: store.Exclusive}
	for _, o := range opts {
		if o == nil || o.applyAcquire(&t) != nil {
			return patience{} // the first call of Acquire reports the bad option
		}
	}
	return patience{t.maxWait > 0, time.Now().Add(t.maxWait)}
}

// options are opts with the rest of the patience, which is enough for one try at least.
func (p patience) options(opts []AcquireOption) []AcquireOption {
	if !p.limited {
		return opts
	}
	return append(slices.Clip(opts), MaxWait(max(time.Until(p.until), time.Millisecond)))
}

// giveUp releases what was granted. A lost lease among them is already in the caller's
// error; a release that fails goes on in the background.
func (all Leases) giveUp() error {
	_ = all.Release()
	var errs []error
	for _, l := range all {
		if done, err := l.result(); !done || !errors.Is(err, ErrLost) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Context returns a context that ends with parent or with any of the leases, whichever
// is first; context.Cause tells why. Its Err looks at the clock first, like that of a
// single lease's context.
func (all Leases) Context(parent context.Context) context.Context {
	for _, l := range all {
		parent = l.Context(parent)
	}
	return &leasesContext{Context: parent, leases: all}
}

// A leasesContext is a context that ends with any of several leases.
type leasesContext struct {
	context.Context
	leases Leases
}

// Err looks at the clock for every lease: one that ran out cancels the context.
func (lc *leasesContext) Err() error {
	for _, l := range lc.leases {
		_ = l.Err()
	}
	return lc.Context.Err()
}

// Err is nil while all leases are held. Afterwards it joins the reasons why leases ended.
func (all Leases) Err() error {
	var errs []error
	for _, l := range all {
		if err := l.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", l.key, err))
		}
	}
	return errors.Join(errs...)
}

// Release ends all leases and then frees their keys concurrently. It joins the errors of
// the single releases, and may be called again.
func (all Leases) Release() error {
	for _, l := range all {
		l.end(ErrReleased)
	}
	giveBackAll(all)
	var errs []error
	for _, l := range all {
		_, err := l.result()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
