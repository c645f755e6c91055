package mongolock

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Feed returns the store's feed, which carries notices between processes; nil if the
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

// freed tells waiters that the key may be free: those of this client, and by the feed
// those of other processes.
func (c *Client) freed(key string) {
	c.mu.Lock()
	c.wake(key)
	quiet := c.feed == nil || c.clock.Now() < c.quietUntil
	c.mu.Unlock()
	if !quiet {
		c.spawn(func() { c.announce(key) })
	}
}

// announceAgain is how long a client announces nothing after the store refused to.
const announceAgain = time.Minute

// announce tells other processes that the key may be free. It does so under
// WithoutFeed too, as others may listen. A refusal may pass, as one for a quota does: it
// is tried again after a minute.
func (c *Client) announce(key string) {
	ctx, cancel := c.within(context.Background(), releaseBound)
	defer cancel()
	err := c.feed.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindFreed})
	switch {
	case err == nil:
	case errors.Is(err, errors.ErrUnsupported):
		c.mu.Lock()
		first := c.quietUntil == 0
		c.quietUntil = c.clock.Now().Add(announceAgain)
		c.mu.Unlock()
		if !first {
			return // it was said
		}
		c.logger.Info("mongolock: the store refuses wake-ups; they are tried again every minute", "key", key, "error", err)
	default:
		c.logger.Debug("mongolock: a wake-up was not sent; waiters find out by themselves", "key", key, "error", err)
	}
}
