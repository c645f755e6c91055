package mongolock

import (
	"context"
	"errors"
	"iter"

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
