package mongolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// Break takes a key away from its holders, on an operator's order. It marks them, so that their
// next renewal ends their leases with ErrBroken and the reason. Then it waits until they have
// given up or run out, or until grace is over, and removes those that are left. Only a grace of
// at least a third of their TTL and a margin makes sure that they are told before the key is
// free. A holder that MinHold keeps was released, and is not waited for. With a negative grace no
// holder is removed: the key stays taken until they give up or run out.
//
// Break returns the holders that it marked. If ctx ends before grace is over they stay marked,
// and the error says so.
func (c *Client) Break(ctx context.Context, key, reason string, grace time.Duration) ([]Holder, error) {
	if err := checkText("reason", reason, 1, maxNote); err != nil {
		return nil, err
	}
	status, err := c.look(ctx, "break", key)
	if err != nil {
		return nil, err
	}
	live := slices.DeleteFunc(slices.Clone(status.Holders), func(h Holder) bool { return !status.Live(h) })
	marked, failed := c.markAll(ctx, &status, live, reason, false)
	if grace < 0 || len(marked) == 0 {
		return marked, failed
	}
	if err := c.awaitGone(ctx, &status, marked, grace); err != nil {
		return marked, errors.Join(failed, err)
	}
	_, err = c.markAll(ctx, &status, marked, reason, true)
	c.freed(key)
	return marked, errors.Join(failed, err)
}

// markAll marks holders as broken, side by side, and returns those that were there. With now set it
// also removes them.
func (c *Client) markAll(ctx context.Context, seen *store.Status, holders []Holder, reason string, now bool) (marked []Holder, err error) {
	errs := make([]error, len(holders))
	sideBySide(len(holders), func(i int) bool {
		errs[i] = c.mark(ctx, store.Ref{Key: seen.Key, ID: holders[i].ID, Mode: seen.Mode}, reason, now)
		return true
	})
	for i, h := range holders {
		if errs[i] == nil {
			h.Broken = reason
			marked = append(marked, h)
		}
	}
	return marked, errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, store.ErrGone) })...)
}

// mark marks one holder. Once ctx ends it is cut off, but not at once: it may be answered in a moment.
func (c *Client) mark(ctx context.Context, r store.Ref, reason string, now bool) error {
	err := c.ready(ctx, "break", r.Key)
	if err != nil {
		return err
	}
	begun := c.background.Do(func() {
		call, cancel := c.background.Within(ctx, releaseBound)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(abandonedFor, cancel) })()
		err = c.store.Break(call, r, reason, now) // there is nothing to clean up: a break may be repeated
	})
	switch {
	case !begun:
		err = ErrClosed
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", contextError(ctx), err)
	}
	if err != nil {
		return &fault{op: "break", key: r.Key, err: err}
	}
	return nil
}

// awaitGone waits until no marked holder is live or all were released, or until grace is over. None has
// run out before the time that it had left when it was marked: by another shard's clock it may seem so.
func (c *Client) awaitGone(ctx context.Context, seen *store.Status, marked []Holder, grace time.Duration) error {
	key, began := seen.Key, c.clock.Now()
	over := time.After(grace)
	look := time.NewTicker(max(min(grace/8, wake.PollMost), time.Millisecond))
	defer look.Stop()
	for {
		select {
		case <-over:
			return nil
		case <-c.queues.draining:
			return &fault{op: "break", key: key, err: fmt.Errorf("marked, but not removed: %w", ErrClosed)}
		case <-ctx.Done():
			return &fault{op: "break", key: key, err: fmt.Errorf("marked, but not removed: %w", contextError(ctx))}
		case <-look.C:
		}
		status, err := c.look(ctx, "break", key)
		passed := c.clock.Since(began)
		live := func(h Holder) bool {
			return slices.ContainsFunc(marked, func(m Holder) bool { return m.ID == h.ID && !h.Released && (status.Live(h) || seen.LeftOf(m) > passed) })
		}
		if err == nil && !slices.ContainsFunc(status.Holders, live) {
			return nil // a fault does not end the wait
		}
	}
}
