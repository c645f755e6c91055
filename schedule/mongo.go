package schedule

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/inside/above"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// New makes a Scheduler whose jobs are documents of coll: one per job, with the job's name as
// its _id. New sends nothing yet. Every process that shares the jobs uses the same collection,
// and keeps nothing else in it. The collection needs no index.
//
// The library sets its own write concern, read concern and read preference, whatever coll says.
func New(coll *mongo.Collection, opts ...Option) (*Scheduler, error) {
	if coll == nil {
		_, err := newConfig(opts)
		return nil, errors.Join(errors.New("schedule: New: the collection is nil"), err)
	}
	m := jobs.NewMongo(coll, server.Monotonic())
	s, err := newWithStore(m, opts...)
	if err == nil {
		m.LogTo(s.logger)
	}
	return s, err
}

// InMemory makes a Scheduler whose jobs are in memory, and which no other Scheduler sees. It is
// for trials. Package scheduletest is for tests.
func InMemory(opts ...Option) (*Scheduler, error) { return newWithStore(jobs.NewMemory(), opts...) }

func init() {
	above.Scheduler = func(store, options any) (scheduler any, err error) {
		return newWithStore(store.(jobs.Store), options.([]Option)...)
	}
	above.Runs = func(scheduler any, job string) []any { return scheduler.(*Scheduler).leases(job) }
}
