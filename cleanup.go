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

// givers is how many parts of the abandoned leases are given back at a time.
const givers = 4

// A returner gives back the leases of a client that have no holder any more: those that were
// lost, and those that came too late for their callers. Thousands may be lost at once, because
// a server is too slow: one command for each would keep the server from renewing the others. It
// is protected by Client.mu.
type returner struct {
	leases []*holding
	busy   int // number of goroutines
}

// giveBackInBackground gives the lease back alone if few others are being given back, and
// otherwise together with them.
func (h *holding) giveBackInBackground() {
	c := h.client
	c.mu.Lock()
	r := &c.returner
	r.leases = append(r.leases, h)
	mine := r.busy < givers
	if mine {
		r.busy++
	}
	c.mu.Unlock()
	if mine && !c.background.Go(c.giveBackUnheld) {
		c.giveBackUnheld() // the client is closing, and waits for the goroutine that runs this
	}
}

func (c *Client) giveBackUnheld() {
	r := &c.returner
	for {
		c.mu.Lock()
		n := min(len(r.leases), batchSize)
		if n == 0 {
			r.leases = nil
			r.busy--
			c.mu.Unlock()
			return
		}
		part := r.leases[:n:n]
		r.leases = r.leases[n:]
		c.mu.Unlock()
		c.keeper.Yield()
		c.giveBackIn(c.bulks(part), bulkBound)
	}
}

// A sweeper removes what dead sessions left, one sweep at a time. It is protected by Client.mu.
type sweeper struct{ busy, again bool }

// sweep removes what dead sessions left, of this client and of others, as far as the store has
// met them. If a sweep is under way, another one follows it.
func (c *Client) sweep() {
	c.mu.Lock()
	first := !c.sweeper.busy
	c.sweeper = sweeper{busy: true, again: true}
	c.mu.Unlock()
	for first && c.sweepAgain() {
		c.keeper.Yield()
		ctx, cancel := c.background.Within(context.Background(), maxCall)
		freed, err := c.sessions.store.Sweep(ctx)
		cancel()
		if len(freed) > 0 {
			c.freed(freed...)
		}
		if err != nil && c.background.Base().Err() == nil {
			c.logger.Info("mongolock: what dead sessions left is not removed yet", "error", err)
		}
	}
}

func (c *Client) sweepAgain() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.sweeper.again
	c.sweeper = sweeper{busy: again}
	return again
}
