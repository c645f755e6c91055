package schedule

import (
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongoclock"
)

// NewMongo is the store that New uses.
func NewMongo(coll *mongo.Collection) Store { return newMongo(coll, mongoclock.Monotonic()) }

// Unsettled returns how many claims a Scheduler tracks.
func (s *Scheduler) Unsettled() int {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return len(s.engine.claims)
}

// NewMongoStoreAt is the same on another local clock.
func NewMongoStoreAt(coll *mongo.Collection, now func() mongoclock.Moment) Store {
	return newMongo(coll, now)
}
