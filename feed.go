package mongolock

import (
	"context"
	"errors"
	"iter"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// Feed is the store's way to carry notices between processes; nil if it has none.
// Wake-ups go over it by themselves: it is for packages like leader, with topics of
// their own. Under WithoutFeed it notifies and does not listen.
func (c *Client) Feed() store.Feed {
	feed := store.FeedOf(c.store)
	if feed != nil && c.noFeed {
		return mute{feed}
	}
	return feed
}

type mute struct{ store.Feed }

func (mute) Watch(context.Context) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) { yield(store.Notice{}, errors.ErrUnsupported) }
}

// settings are those of a client, and of whatever embeds one.
func (c *Client) settings() *config { return &c.config }

func init() {
	inside.TermsOf = func(locker any, key string, options any) (inside.Terms, error) {
		conf, err := newConfig(nil)
		if c, ok := locker.(interface{ settings() *config }); ok {
			conf, err = *c.settings(), nil
		}
		if err != nil {
			return inside.Terms{}, err
		}
		t, err := conf.ask(key, options.([]AcquireOption))
		if err != nil {
			return inside.Terms{}, err
		}
		return inside.Terms{Mode: t.mode, Limit: t.limit, MinHold: t.minHold, Logger: conf.logger}, nil
	}
}

// freed tells those who wait that the key may be free: here, and in other
// processes by the feed.
func (c *Client) freed(key string) {
	c.mu.Lock()
	c.wake(key)
	feed := c.feed
	c.mu.Unlock()
	if feed == nil {
		return
	}
	c.spawn(func() { c.announce(feed, key) })
}

// announce tells other processes that the key may be free. It does so also where
// this one does not listen: others may.
func (c *Client) announce(feed store.Feed, key string) {
	ctx, cancel := c.within(context.Background(), releaseBound)
	defer cancel()
	err := feed.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindFreed})
	if err == nil {
		return
	}
	c.logger.Debug("mongolock: a wake-up was not sent; waiters find out by themselves", "key", key, "error", err)
	if errors.Is(err, errors.ErrUnsupported) {
		c.mu.Lock()
		c.feed = nil
		c.mu.Unlock()
	}
}
