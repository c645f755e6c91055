package mongostore

import (
	"context"
	"errors"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/feed"
	"github.com/mongolock/mongolock/store"
)

// Notify sends notices with one command, if others may be listening.
func (s *Store) Notify(ctx context.Context, all ...store.Notice) error {
	return s.feed.Notify(ctx, all...)
}

// Watch yields the notices for an audience that are sent from now on.
func (s *Store) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return s.feed.Watch(ctx, of)
}

// FeedOn returns the feed by which stores on coll tell each other, for other programs' notices
// between processes, under topics of their own. They go through a small capped collection
// beside coll. It sends nothing yet.
func FeedOn(coll *mongo.Collection) (store.Feed, error) {
	if coll == nil {
		return nil, errors.New("mongostore: FeedOn: the collection is nil")
	}
	return feed.Beside(command.New(coll, nil)), nil
}

func init() {
	inside.FeedAwait = func(s any, d time.Duration) { s.(*Store).feed.(*feed.Feed).Await = d }
}
