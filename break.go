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
	var marked []Holder
	var errs []error
	for _, h := range status.Holders {
		if !status.Live(h) {
			continue
		}
		err := c.mark(ctx, refTo(status, h), reason, false)
		if err == nil {
			h.Broken = reason
			marked = append(marked, h)
		} else if !errors.Is(err, store.ErrGone) {
			errs = append(errs, err)
		}
	}
	if grace < 0 || len(marked) == 0 {
		return marked, errors.Join(errs...)
	}
	if err := c.awaitGone(ctx, &status, marked, grace); err != nil {
		return marked, errors.Join(append(errs, err)...)
	}
	for _, h := range marked {
		if err := c.mark(ctx, refTo(status, h), reason, true); err != nil && !errors.Is(err, store.ErrGone) {
			errs = append(errs, err)
		}
	}
	c.freed(key)
	return marked, errors.Join(errs...)
}

func refTo(s Status, h Holder) store.Ref { return store.Ref{Key: s.Key, ID: h.ID, Mode: s.Mode} }

// mark marks a holder as broken. With now set it also removes the holder.
func (c *Client) mark(ctx context.Context, r store.Ref, reason string, now bool) (err error) {
	begun := c.background.Do(func() {
		call, cancel := c.background.Within(ctx, releaseBound)
		defer cancel()
		err = c.store.Break(call, r, reason, now) // there is nothing to clean up: a break may be repeated
	})
	if !begun {
		err = ErrClosed
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
