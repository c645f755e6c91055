package schedule

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
)

// NewWithStore makes a Scheduler on a store.
var NewWithStore = newWithStore

// NewMongo is the store that New uses.
func NewMongo(coll *mongo.Collection) jobs.Store { return jobs.NewMongo(coll, server.Monotonic()) }

// NewMongoStoreAt is the same on another local clock.
func NewMongoStoreAt(coll *mongo.Collection, now func() server.Moment) jobs.Store {
	return jobs.NewMongo(coll, now)
}

// Kept has a history of a job say what options it has here, and when it is due by the plans of its document.
func (s *Scheduler) Kept(h *jobstest.History) error {
	j := s.jobs[h.Name]
	if j == nil {
		return errRemoved
	}
	h.Each, h.Beside, h.Once, h.MaxLate, h.Retries, h.Backoff = j.each, j.beside, j.once, j.maxLate, j.retries, j.backoff
	h.Due = map[string][]time.Time{}
	for _, step := range h.Steps {
		if h.TTL = max(h.TTL, step.TTL); step.After == nil {
			continue
		}
		for _, span := range step.After.Plans {
			if _, known := h.Due[span.Plan]; known || span.Plan == "" {
				continue
			}
			p, err := readPlan(span.Plan, j.plan)
			if err != nil {
				return err
			}
			var due []time.Time
			for at := p.Next(h.Begin.Add(-time.Second)); !at.IsZero() && at.Before(h.Steps[len(h.Steps)-1].At.Add(time.Minute)) && len(due) < 5000; at = p.Next(at) {
				due = append(due, at)
			}
			h.Due[span.Plan] = due
		}
	}
	return nil
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
