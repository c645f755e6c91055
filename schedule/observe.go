package schedule

import (
	"context"
	"errors"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

const pkg = "schedule"

// errTaken shows observers a refused claim as held.
var errTaken error = &taken{}

type taken struct{}

func (*taken) Error() string        { return "another process may have it" }
func (*taken) Is(target error) bool { return target == store.ErrHeld }

var errPanicked = errors.New("schedule: the job panicked")

// Package returns the package whose operations observers see.
func (*leaseStore) Package() string { return pkg }

// Stats returns the numbers of this process's part: the leases held are those of the runs under
// way. They are zero while the Scheduler is not running.
func (s *Scheduler) Stats() mongolock.Stats {
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if client == nil {
		return mongolock.Stats{Package: pkg, Feed: store.FeedNone}
	}
	return client.Stats()
}

func (s *Scheduler) clientOptions() []mongolock.ClientOption {
	opts := []mongolock.ClientOption{mongolock.WithOwner(s.owner), mongolock.WithLogger(s.logger)}
	if s.observer != nil {
		opts = append(opts, mongolock.WithObserver(s.observer))
	}
	return opts
}

// shown returns the context of a claim in which observers see the job in place of the due time: the
// number of due times is unlimited.
func shown(ctx context.Context, j *job, a *ask) context.Context {
	ctx = context.WithValue(ctx, inside.ShownKey{}, inside.Shown{Key: j.name})
	return context.WithValue(ctx, askKey{}, a)
}

// observeRun tells the observer that the job's function begins.
func (s *Scheduler) observeRun(ctx context.Context, j *job, r Run) (_ context.Context, end func(err error, returned bool)) {
	ctx, tell := s.told.Begin(ctx, mongolock.Operation{Op: mongolock.OpRun, Package: pkg, Key: j.name, Mode: store.Exclusive})
	return ctx, func(err error, returned bool) {
		switch lost := r.Lease.Err(); {
		case !returned:
			err = errPanicked
		case errors.Is(lost, mongolock.ErrLost):
			err = lost
		}
		tell(mongolock.Outcome{Err: err, Token: r.Token(), Count: 1})
	}
}

// observeDropped tells the observer of due times that will not run.
func (s *Scheduler) observeDropped(e Event) {
	_, end := s.told.Begin(context.Background(), mongolock.Operation{Op: mongolock.OpMiss, Package: pkg, Key: e.Job})
	end(mongolock.Outcome{Count: e.Count})
}

// leases returns the leases of a job's runs under way.
func (s *Scheduler) leases(name string) (runs []any) {
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if client == nil {
		return nil
	}
	for _, l := range inside.Leases(client) {
		lease := l.(*mongolock.Lease)
		if t, is := s.runs.find(lease.ID()); is && t.claim.Job == name && lease.Err() == nil {
			runs = append(runs, lease)
		}
	}
	return runs
}
