package mongolock

import (
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/store"
)

// FeedOn is the feed that clients on coll use to wake each other, for what else needs
// wake-ups between processes (package pathlock does). The notices go through a small
// capped collection beside coll, under topics of their own. It sends nothing yet.
func FeedOn(coll *mongo.Collection) (store.Feed, error) {
	s, err := newMongoStore(coll, mongoOptions{noIndex: true})
	if err != nil {
		return nil, err
	}
	return feedOnly{s}, nil
}

// feedOnly is a feed that cannot be taken for a store.
type feedOnly struct{ store.Feed }
