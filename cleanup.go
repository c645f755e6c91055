package mongolock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/cleaner"
	"github.com/mongolock/mongolock/internal/monotonic"
)

// trySettles is how long a TryAcquire waits for clean-ups.
const trySettles = 5 * time.Second

// settleFirst cleans up this client's earlier claims that may hold the key before another one is
// sent: at once, with one attempt each, for no longer than ctx lasts. At until it gives up,
// because of why; zero: never. An error says that such a claim may still hold the key.
func (c *Client) settleFirst(ctx context.Context, key string, until monotonic.Moment, why error) error {
	if !c.cleaner.May(key) {
		return nil
	}
	if until == 0 {
		until = monotonic.Never
	}
	bounded, cancel := context.WithDeadlineCause(ctx, c.clock.Time(until), why)
	defer cancel()
	err := c.cleaner.Settle(bounded, key)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cleaner.ErrStopped):
		return &fault{op: "acquire", key: key, err: ErrClosed}
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", cleaner.ErrUnsettled, contextError(ctx))
	case !errors.Is(err, cleaner.ErrUnsettled):
		err = fmt.Errorf("%w: %w", cleaner.ErrUnsettled, err)
	}
	return &fault{op: "acquire", key: key, err: err, unknown: true}
}

// errCrowded is why a claim was not sent.
var errCrowded = fmt.Errorf("%w: too many earlier claims of this client are not settled yet", ErrNotApplied)
