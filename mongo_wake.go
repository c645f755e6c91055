package mongolock

import (
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// The wake-ups of a collection are of use to what is kept in it beside locks:
// package doclock has a topic of its own there.
func init() {
	wake.On = func(coll *mongo.Collection) store.Feed {
		s, err := newMongoStore(coll, mongoOptions{noIndex: true})
		if err != nil {
			return nil // a nil collection: whoever asks has refused that
		}
		return struct{ store.Feed }{s}
	}
}
