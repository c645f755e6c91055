package mongolock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Feed returns the store's feed, which carries notices between processes, or nil if the
// store has none. The client sends and hears its wake-ups by itself: Feed is for
// packages with topics of their own, such as leader. Under WithoutFeed it sends notices
// and hears none.
func (c *Client) Feed() store.Feed {
	feed := store.FeedOf(c.store)
	if feed != nil && c.noFeed {
		return mute{feed}
	}
	return feed
}

// A mute feed sends and does not listen.
type mute struct{ store.Feed }

func (mute) Watch(context.Context) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) { yield(store.Notice{}, errors.ErrUnsupported) }
}

// freed tells waiters that keys may be free: those of this client, and by the feed those
// of other processes.
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

// announceAgain is how long a client announces nothing after the store refused to.
const announceAgain = time.Minute

// announce tells other processes that keys may be free. It does so under
// WithoutFeed too, as others may listen. A refusal may pass, as one for a quota does: it
// is tried again after a minute.
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
			return // it was said
		}
		c.logger.Info("mongolock: the store refuses wake-ups; they are tried again every minute", "key", keys[0], "keys", len(keys), "error", err)
	default:
		c.logger.Debug("mongolock: a wake-up was not sent; waiters find out by themselves", "key", keys[0], "keys", len(keys), "error", err)
	}
}

// notify announces keys, with one call if there are several and the feed has such a call.
func (c *Client) notify(ctx context.Context, keys []string) error {
	freed := func(key string) store.Notice {
		return store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindFreed}
	}
	if bulk, ok := c.feed.(store.BulkFeed); ok && len(keys) > 1 {
		distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
		notices := make([]store.Notice, len(distinct))
		for i, key := range distinct {
			notices[i] = freed(key)
		}
		return bulk.NotifyMany(ctx, notices)
	}
	for _, key := range keys {
		if err := c.feed.Notify(ctx, freed(key)); err != nil {
			return err
		}
	}
	return nil
}
