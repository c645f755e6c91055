package schedule

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
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

// LooksAt schedules looks at a job and answers when the first of them is due.
func (s *Scheduler) LooksAt(job string, looks ...time.Time) time.Time {
	for _, at := range looks {
		s.lookAt(s.jobs[job], at)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for _, it := range s.queue {
		if it.task == lookAgain && (first.IsZero() || it.at.Before(first)) {
			first = it.at
		}
	}
	return first
}
