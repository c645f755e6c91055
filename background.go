package mongolock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/suspend"
	"github.com/mongolock/mongolock/store"
)

// spawn runs f in the background, and Close waits for f. It reports false, and does nothing, if
// the client is closed.
func (c *Client) spawn(f func()) bool { return c.background.Go(f) }

func (c *Client) enter() bool { return c.background.Begin() }

func (c *Client) enterLocked() bool { return c.background.Begin() }

func (c *Client) pause(d time.Duration) bool { return c.background.Pause(d) }

func (c *Client) bound(values context.Context, deadline monotonic.Moment) (context.Context, context.CancelFunc) {
	return c.background.Bound(values, deadline)
}

// within is bound with a deadline d from now.
func (c *Client) within(values context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return c.background.Within(values, d)
}

const (
	watchdogPeriod = time.Second
	sleptAtLeast   = 100 * time.Millisecond // less is a reading that was interrupted
)

// A watchdog notices that the machine was suspended, while leases are held or waited for. A
// suspended process's timers stand still, and go on afterwards as if nothing had happened. The
// watchdog then ends the leases that ran out and renews those that are due.
type watchdog struct {
	meter suspend.Meter
	seen  time.Duration // time asleep at the last look; used by one look at a time
	awake bool          // the timer is set; protected by Client.mu
}

// measure makes the client's clock count what m measures.
func (c *Client) measure(m suspend.Meter) {
	c.clock, c.watchdog.meter = monotonic.CountingSleep(m), m
}

// watchSleep sets the watchdog's timer, unless it is set or sleep is not measured. Call it with
// c.mu held.
func (c *Client) watchSleep() {
	if c.watchdog.awake || !c.watchdog.meter.Measures() {
		return
	}
	c.watchdog.awake = true
	time.AfterFunc(watchdogPeriod, c.lookForSleep)
}

// lookForSleep checks for sleep when the timer fires, and sets it again while there are leases
// or waiters.
func (c *Client) lookForSleep() {
	c.background.Do(c.measureSleep)
}

func (c *Client) measureSleep() {
	asleep := c.watchdog.meter.Asleep()
	if asleep-c.watchdog.seen >= sleptAtLeast {
		c.afterSleep()
	}
	c.watchdog.seen = max(c.watchdog.seen, asleep)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchdog.awake = false
	if c.held.first != nil || c.waiting > 0 {
		c.watchSleep()
	}
}

// afterSleep ends the leases that ran out while the machine slept. It sets the timers of the
// others by the time that has passed, which renews those that are due. It also reads the keys
// that are waited for: their wake-ups may have been missed.
func (c *Client) afterSleep() {
	c.keeper.Rearm()
	c.mu.Lock()
	for _, q := range c.queues {
		q.look()
	}
	c.mu.Unlock()
	if c.sessions != nil {
		c.sessions.afterSleep()
	}
	for _, h := range c.unsettled() {
		h.expire()
	}
}

// Feed returns the store's feed, which carries notices between processes, or nil if the store
// has none. The client sends and hears its wake-ups by itself: Feed is for packages with topics
// of their own, such as leader. Under WithoutFeed it sends notices and hears none.
func (c *Client) Feed() store.Feed {
	feed := store.FeedOf(c.store)
	if feed != nil && c.noFeed {
		return sendOnly{feed}
	}
	return feed
}

// A sendOnly feed sends notices and hears none.
type sendOnly struct{ store.Feed }

func (sendOnly) Watch(context.Context) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) { yield(store.Notice{}, errors.ErrUnsupported) }
}

// freed tells waiters that keys may be free: this client's waiters, and those of other
// processes by the feed.
func (c *Client) freed(keys ...string) {
	c.mu.Lock()
	for _, key := range keys {
		c.wake(key)
	}
	quiet := c.feed == nil || c.clock.Now() < c.quietUntil
	c.mu.Unlock()
	if quiet || len(keys) == 0 {
		return
	}
	if !c.spawn(func() { c.announce(keys) }) {
		c.announce(keys) // the client is closing, and waits for the goroutine that runs this
	}
}

// announceAgain is how long a client stops announcing after the store refused an announcement.
const announceAgain = time.Minute

// announce tells other processes that keys may be free. It does so under WithoutFeed too, as
// others may listen. A refusal may pass, as one for a quota does: after a minute it is tried
// again.
func (c *Client) announce(keys []string) {
	ctx, cancel := c.within(context.Background(), releaseBound)
	defer cancel()
	switch err := c.notify(ctx, keys); {
	case err == nil:
	case errors.Is(err, errors.ErrUnsupported):
		c.mu.Lock()
		first := c.quietUntil == 0
		c.quietUntil = c.clock.Now().Add(announceAgain)
		c.mu.Unlock()
		if !first {
			return // the log has said so
		}
		c.logger.Info("mongolock: the store refuses wake-ups; they are tried again every minute", "key", keys[0], "keys", len(keys), "error", err)
	default:
		c.logger.Debug("mongolock: a wake-up was not sent; waiters find out by themselves", "key", keys[0], "keys", len(keys), "error", err)
	}
}

// notify announces keys in one call.
func (c *Client) notify(ctx context.Context, keys []string) error {
	distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
	notices := make([]store.Notice, len(distinct))
	for i, key := range distinct {
		notices[i] = store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindFreed}
	}
	return c.feed.Notify(ctx, notices...)
}

// askFor asks the holder of a key to free it, if that holder Lingers. A word in the record
// makes the release wake the waiter that asks. Call it with c.mu held.
func (c *Client) askFor(s *store.Status) {
	kept := slices.ContainsFunc(s.Holders, func(h store.Holder) bool { return h.Lingers && s.Live(h) })
	if !kept || c.feed == nil || c.clock.Now() < c.quietUntil {
		return
	}
	key := s.Key
	c.background.Go(func() {
		ctx, cancel := c.within(context.Background(), releaseBound)
		defer cancel()
		if err := c.feed.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindWanted}); err != nil {
			c.logger.Debug("mongolock: a holder was not asked to free a key that it may only keep", "key", key, "error", err)
		}
	})
}
