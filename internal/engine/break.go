package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/errtext"
	"github.com/mongolock/mongolock/store"
)

// Break marks the holders of a key as broken, waits until they have given up or run out, or until grace is over, and
// removes those that are left. It returns those that it marked.
func (e *Engine) Break(ctx context.Context, key, reason string, grace time.Duration) ([]store.Holder, error) {
	status, err := e.Look(ctx, "break", key)
	if err != nil {
		return nil, err
	}
	live := slices.DeleteFunc(slices.Clone(status.Holders), func(h store.Holder) bool { return !status.Live(h) })
	marked, failed := e.markAll(ctx, &status, live, reason, false)
	if grace < 0 || len(marked) == 0 {
		return marked, failed
	}
	if err := e.awaitGone(ctx, &status, marked, grace); err != nil {
		return marked, errtext.Join(failed, err)
	}
	_, err = e.markAll(ctx, &status, marked, reason, true)
	e.step(Event{Kind: Freed, Key: key})
	return marked, errtext.Join(failed, err)
}

// markAll marks holders as broken, side by side, and returns those that were there. With now set it also removes them.
func (e *Engine) markAll(ctx context.Context, seen *store.Status, holders []store.Holder, reason string, now bool) (marked []store.Holder, err error) {
	errs := make([]error, len(holders))
	SideBySide(len(holders), func(i int) bool {
		errs[i] = e.mark(ctx, store.Ref{Key: seen.Key, ID: holders[i].ID, Mode: seen.Mode}, reason, now)
		return true
	})
	for i, h := range holders {
		if errs[i] == nil {
			h.Broken = reason
			marked = append(marked, h)
		}
	}
	return marked, errtext.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, store.ErrGone) })...)
}

// mark marks one holder. Once ctx ends it is cut off, but not at once: it may be answered in a moment.
func (e *Engine) mark(ctx context.Context, r store.Ref, reason string, now bool) error {
	err := e.Ready(ctx, "break", r.Key)
	if err != nil {
		return err
	}
	begun := e.background.Do(func() {
		call, cancel := e.background.Within(ctx, releaseBound)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(AbandonedFor, cancel) })()
		err = e.store.Break(call, r, reason, now) // there is nothing to clean up: a break may be repeated
	})
	switch {
	case !begun:
		err = ErrClosed
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ContextError(ctx), err)
	}
	if err != nil {
		return &Fault{Op: "break", Key: r.Key, Err: err}
	}
	return nil
}

// awaitGone waits until no marked holder is live or all were released, or until grace is over. None has run out before
// the time that it had left when it was marked: by another shard's clock it may seem so.
func (e *Engine) awaitGone(ctx context.Context, seen *store.Status, marked []store.Holder, grace time.Duration) error {
	key, began := seen.Key, e.clock.Now()
	over := time.After(grace)
	look := time.NewTicker(max(min(grace/8, pollMost), time.Millisecond))
	defer look.Stop()
	for {
		select {
		case <-over:
			return nil
		case <-e.draining:
			return &Fault{Op: "break", Key: key, Err: fmt.Errorf("marked, but not removed: %w", ErrClosed)}
		case <-ctx.Done():
			return &Fault{Op: "break", Key: key, Err: fmt.Errorf("marked, but not removed: %w", ContextError(ctx))}
		case <-look.C:
		}
		status, err := e.Look(ctx, "break", key)
		passed := e.clock.Since(began)
		live := func(h store.Holder) bool {
			return slices.ContainsFunc(marked, func(m store.Holder) bool {
				return m.ID == h.ID && !h.Released && (status.Live(h) || seen.LeftOf(m) > passed)
			})
		}
		if err == nil && !slices.ContainsFunc(status.Holders, live) {
			return nil // a fault does not end the wait
		}
	}
}
