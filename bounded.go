package mongolock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// A bounded is the context of one store call.
type bounded struct {
	context.Context
	values context.Context
	end    context.CancelFunc
}

func (c *Client) bound(values context.Context, deadline monotonic.Moment) *bounded {
	ctx, end := context.WithDeadline(c.base, c.clock.Time(deadline))
	return &bounded{ctx, values, end}
}

func (c *Client) within(values context.Context, d time.Duration) *bounded {
	return c.bound(values, c.clock.Now().Add(d))
}

func (b *bounded) Value(key any) any {
	if v := b.Context.Value(key); v != nil {
		return v
	}
	return b.values.Value(key)
}
