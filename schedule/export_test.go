package schedule

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// NewWithStore makes a Scheduler on a store.
var NewWithStore = newWithStore

// NewMongo is the store that New uses.
func NewMongo(coll *mongo.Collection) jobs.Store { return jobs.NewMongo(coll, server.Monotonic()) }

// NewMongoStoreAt is the same on another local clock.
func NewMongoStoreAt(coll *mongo.Collection, now func() server.Moment) jobs.Store {
	return jobs.NewMongo(coll, now)
}

// Unsettled returns how many claims a Scheduler tracks.
func (s *Scheduler) Unsettled() int {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	return len(s.runs.claims)
}

// ReadsAt schedules reads of a job and answers when the first of them is due.
func (s *Scheduler) ReadsAt(job string, reads ...time.Time) time.Time {
	for _, at := range reads {
		s.readAt(s.jobs[job], at)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for _, it := range s.queue {
		if it.task == readAgain && (first.IsZero() || it.at.Before(first)) {
			first = it.at
		}
	}
	return first
}
