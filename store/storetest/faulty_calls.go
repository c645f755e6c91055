package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/mongolock/mongolock/store"
)

// Acquire passes the call on, or does what a Fault says.
func (f *Faulty) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	var g store.Grant
	if err := f.do(ctx, OpAcquire, []store.Ref{c.Ref}, func(ctx context.Context) (err error) {
		g, err = f.Store.Acquire(ctx, c)
		return err
	}); err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

// Renew answers every entry of a batch with the fault, if there is one.
func (f *Faulty) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	refs := make([]store.Ref, len(batch))
	for i, r := range batch {
		refs[i] = r.Ref
	}
	mine := slices.Clone(batch) // a late call must not read a slice that the caller reuses
	var answers []store.Renewed
	if err := f.do(ctx, OpRenew, refs, func(ctx context.Context) error {
		answers = f.Store.Renew(ctx, mine)
		return nil
	}); err != nil {
		failed := make([]store.Renewed, len(batch))
		for i := range failed {
			failed[i].Err = err
		}
		return failed
	}
	return answers
}

// Release passes the call on, or does what a Fault says.
func (f *Faulty) Release(ctx context.Context, e store.Ending) (store.Ended, error) {
	var answer store.Ended // not a named result: a late call writes it after Release has returned
	if err := f.do(ctx, OpRelease, []store.Ref{e.Ref}, func(ctx context.Context) (err error) {
		answer, err = f.Store.Release(ctx, e)
		return err
	}); err != nil {
		return store.Ended{}, err
	}
	return answer, nil
}

// Leave passes the call on, or does what a Fault says.
func (f *Faulty) Leave(ctx context.Context, key string, p store.Place, silent bool) (store.Status, error) {
	var status store.Status // not a named result: a late call writes it after Leave has returned
	if err := f.do(ctx, OpLeave, nil, func(ctx context.Context) (err error) {
		status, err = f.Store.Leave(ctx, key, p, silent)
		return err
	}); err != nil {
		return store.Status{}, err
	}
	return status, nil
}

// Transfer passes the call on, or does what a Fault says.
func (f *Faulty) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	var g store.Grant
	if err := f.do(ctx, OpTransfer, []store.Ref{to.Ref, from}, func(ctx context.Context) (err error) {
		g, err = f.Store.Transfer(ctx, from, to)
		return err
	}); err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

// Undo passes the call on, and is settled once Late has no claim of that ID to apply.
func (f *Faulty) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	var settled bool
	refs := []store.Ref{claim}
	if from != nil {
		refs = append(refs, *from)
	}
	if err := f.do(ctx, OpUndo, refs, func(ctx context.Context) (err error) {
		settled, err = f.undo(ctx, claim, from)
		return err
	}); err != nil {
		return false, err
	}
	return settled, nil
}

// Break passes the call on, or does what a Fault says.
func (f *Faulty) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	return f.do(ctx, OpBreak, []store.Ref{r}, func(ctx context.Context) error {
		return f.Store.Break(ctx, r, reason, now)
	})
}

// Look returns no statuses with a fault. With the real store's error it returns the real
// store's statuses.
func (f *Faulty) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	mine := slices.Clone(keys)
	var all []store.Status
	var verdict error
	if err := f.do(ctx, OpLook, nil, func(ctx context.Context) error {
		all, verdict = f.Store.Look(ctx, mine)
		return nil
	}); err != nil {
		return nil, err
	}
	return all, verdict
}

// List reads everything from the real store before it yields anything.
func (f *Faulty) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		var all []store.Status
		err := f.do(ctx, OpList, nil, func(ctx context.Context) error {
			for status, err := range f.Store.List(ctx, prefix) {
				if err != nil {
					return err
				}
				all = append(all, status)
			}
			return nil
		})
		if err != nil {
			yield(store.Status{}, err)
			return
		}
		for _, status := range all {
			if !yield(status, nil) {
				return
			}
		}
	}
}

// Notify passes the call on, or does what a Fault says.
func (f *Faulty) Notify(ctx context.Context, all ...store.Notice) error {
	mine := slices.Clone(all)
	return f.do(ctx, OpNotify, nil, func(ctx context.Context) error {
		feed := store.FeedOf(f.Store)
		if feed == nil {
			return errNoFeed
		}
		return feed.Notify(ctx, mine...)
	})
}

// Watch passes the call on, or does what a Fault says.
func (f *Faulty) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer f.watching(&cancel)()
		err := f.do(ctx, OpWatch, nil, func(context.Context) error { return nil })
		feed := store.FeedOf(f.Store)
		if err == nil && feed == nil {
			err = errNoFeed
		}
		if err != nil {
			yield(store.Notice{}, err)
			return
		}
		for n, err := range feed.Watch(ctx, of) {
			if context.Cause(ctx) == errCut {
				break
			}
			if !yield(n, err) {
				return
			}
		}
		if context.Cause(ctx) == errCut {
			yield(store.Notice{}, errCut)
		}
	}
}

// watching registers a watch for Cut until the returned function is called.
func (f *Faulty) watching(cancel *context.CancelCauseFunc) (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[cancel] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watches, cancel)
	}
}

var (
	errCut    = fmt.Errorf("%w: watch cut", ErrFault)
	errNoFeed = fmt.Errorf("storetest: no feed: %w", errors.ErrUnsupported)
)
