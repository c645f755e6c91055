package mongolock

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/internal/observe"
	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// SetLimit gives a key n permits, from 1 to 10,000, whatever number OneOf names. With n = 0 that
// number counts again. Every claim that begins after SetLimit has returned is granted by it. It
// outlasts this process and all holders, until it is set again.
//
// No lease is ended: while more than n permits are taken, none is granted. A higher number wakes
// those who wait. A claim whose Weight is more than n waits until the number is raised, and those
// behind it pass it meanwhile. Still all claims have to name the same number with OneOf.
//
// After an error that does not match ErrNotApplied the number may be set, or be set yet: call
// SetLimit again. On MongoDB 4.4 a claim of several permits, or through mongos, may go by the number
// before while a deposed primary still answers. A store that keeps no such number, as package
// doclock's, answers errors.ErrUnsupported.
func (c *Client) SetLimit(ctx context.Context, key string, n int) error {
	if err := checkText("key", key, 1, maxKey); err != nil {
		return err
	}
	if n < 0 || n > maxPermits {
		return fmt.Errorf("mongolock: SetLimit(%d): must be between 0 and %d", n, maxPermits)
	}
	if err := c.ready(ctx, "set limit", key); err != nil {
		return err
	}
	setter, ok := store.As[store.LimitSetter](c.store)
	if !ok {
		return &fault{op: "set limit", key: key, err: errors.ErrUnsupported}
	}
	var status Status
	var err error
	begun := c.background.Do(func() {
		call, cancel := c.background.Within(ctx, maxCall)
		defer cancel()
		c.calls.Add(observe.SetLimit)
		status, err = setter.SetLimit(call, key, n)
	})
	switch {
	case !begun:
		return &fault{op: "set limit", key: key, err: ErrClosed}
	case err != nil:
		return &fault{op: "set limit", key: key, err: err}
	case len(status.Line) == 0:
		return nil
	}
	c.tellOf(&status)
	var passed []store.Place // their processes let others pass them
	for _, w := range status.Line {
		if n > 0 && w.Place.Weight() > n {
			passed = append(passed, w.Place)
		}
	}
	c.watch.Announce(wake.Notices(store.KindMoved, key, passed)...)
	c.queues.Read([]Status{status})
	return nil
}
