package schedule

import (
	"context"
	"errors"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/observe"
	"github.com/mongolock/mongolock/store"
)

const pkg = "schedule"

// errTaken shows observers a refused claim as held.
var errTaken error = &taken{}

type taken struct{}

func (*taken) Error() string        { return "another process may have it" }
func (*taken) Is(target error) bool { return target == store.ErrHeld }

var errPanicked = errors.New("schedule: the job panicked")

type guarded = observe.Guard[mongolock.Operation, mongolock.Outcome]

func guardOf(client *mongolock.Client) *guarded {
	g, _ := inside.Guard(client).(*guarded)
	return g
}

// Package returns the package whose operations observers see.
func (*engine) Package() string { return pkg }

// Commands returns the commands that the store has sent to the database; nil if there is no
// database.
func (e *engine) Commands() map[string]uint64 {
	if s, ok := e.store.(interface{ Commands() map[string]uint64 }); ok {
		return s.Commands()
	}
	return nil
}

// Stats returns the numbers of this process's part: the leases held are those of the runs under
// way. They are zero while the Scheduler is not running.
func (s *Scheduler) Stats() mongolock.Stats {
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if client == nil {
		return mongolock.Stats{Package: pkg, Feed: mongolock.FeedNone}
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

// shown returns the context of a claim in which observers see the job in place of the fire: the
// number of fires is unlimited.
func shown(ctx context.Context, j *job, a *ask) context.Context {
	ctx = context.WithValue(ctx, inside.ShownKey{}, inside.Shown{Key: j.name})
	return context.WithValue(ctx, askKey{}, a)
}

// observeRun tells the observer that the job's function begins.
func (s *Scheduler) observeRun(ctx context.Context, j *job, r Run) (_ context.Context, end func(err error, returned bool)) {
	ctx, tell := s.guard.Begin(ctx, mongolock.Operation{Op: mongolock.OpRun, Package: pkg, Key: j.name, Mode: store.Exclusive})
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

// observeMiss tells the observer of fires that will not run.
func (s *Scheduler) observeMiss(e Event) {
	_, end := s.guard.Begin(context.Background(), mongolock.Operation{Op: mongolock.OpMiss, Package: pkg, Key: e.Job})
	end(mongolock.Outcome{})
}

func init() {
	inside.Job = func(scheduler any, name string) (runs []any, skips bool) { return scheduler.(*Scheduler).inside(name) }
	inside.RunOut = func(memory any, job, id string) { memory.(*Memory).runOut(job, id) }
}

// inside returns the leases of a job's runs under way, and whether they skip fires.
func (s *Scheduler) inside(name string) (runs []any, skips bool) {
	s.mu.Lock()
	client, j := s.client, s.jobs[name]
	s.mu.Unlock()
	skips = j != nil && j.overlap == Skip
	if client == nil {
		return nil, skips
	}
	for _, l := range inside.Leases(client) {
		lease := l.(*mongolock.Lease)
		if t, is := s.engine.find(lease.ID()); is && t.claim.Job == name && lease.Err() == nil {
			runs = append(runs, lease)
		}
	}
	return runs, skips
}
