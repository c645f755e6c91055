// Package wake lends the wake-ups that belong to a collection to the packages
// beside the root, which keep other things in it than locks. The root owns them
// (mongo_feed.go) and says so when it is initialised; who asks imports the root
// anyway, for its engine.
package wake

import (
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/store"
)

// On makes the feed of a collection. It sends nothing. Set by the root package.
var On func(*mongo.Collection) store.Feed
