package mongolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Leases are what AcquireAll grants: one lease for each key, in the order of the
// keys. They may be used one by one as well.
type Leases []*Lease

// AcquireAll acquires several keys, all or none. They are asked for one after the
// other in byte order, whatever order they are given in, so that callers with keys
// in common cannot wait for each other in a circle. While it waits for one key it
// holds those before: ask for few keys, and hold them for a short time.
//
// If one is not granted, or one that was granted is lost meanwhile, those granted
// so far are given back and the error says which and why. The options hold for each
// key; a MaxWait among them is for all keys together.
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
	return leases, nil
}

// usableKeys is the keys in order, each of them once and good for a lock.
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
			return patience{} // the first Acquire says what is wrong
		}
	}
	return patience{t.maxWait > 0, time.Now().Add(t.maxWait)}
}

// options are opts with what is left of the patience, at least enough for one try.
func (p patience) options(opts []AcquireOption) []AcquireOption {
	if !p.limited {
		return opts
	}
	return append(slices.Clip(opts), MaxWait(max(time.Until(p.until), time.Millisecond)))
}

// giveUp releases what was granted in vain. That somebody had lost a part of it is
// no news; a release that fails goes on in the background.
func (all Leases) giveUp() error {
	err := all.Release()
	if errors.Is(err, ErrLost) {
		return nil
	}
	return err
}

// Context is parent, also cancelled when any of the leases ends; context.Cause
// tells why. Its Err looks at the clock first, like that of a single lease.
func (all Leases) Context(parent context.Context) context.Context {
	for _, l := range all {
		parent = l.Context(parent)
	}
	return &leasesContext{Context: parent, leases: all}
}

// A leasesContext hangs on several leases, one in the other.
type leasesContext struct {
	context.Context
	leases Leases
}

// Err looks at the clock of every lease: one that ran out cancels the context as it
// notices.
func (lc *leasesContext) Err() error {
	for _, l := range lc.leases {
		_ = l.Err()
	}
	return lc.Context.Err()
}

// Err is nil while all leases are held, then why they ended, joined.
func (all Leases) Err() error {
	var errs []error
	for _, l := range all {
		if err := l.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", l.key, err))
		}
	}
	return errors.Join(errs...)
}

// Release ends all the leases and then frees their keys, side by side. It returns
// the errors of the single releases, joined, and may be called again.
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
