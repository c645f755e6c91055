// Package cronlock lets several hosts run the jobs of robfig/cron v3 once: a
// JobWrapper that runs a job under a lock on MongoDB.
//
//	once, err := cronlock.New(client, mongolock.MinHold(30*time.Second))
//	c := cron.New()
//	c.AddJob("0 3 * * *", once.Wrap("nightly-report")(job))
//
// A host that finds the key held skips the run. The key is free when the job is done,
// so a host whose clock is late by more than the job takes would run it again:
// mongolock.MinHold keeps the key for so long from its grant on. It should be longer
// than the clocks are apart, and shorter than the period. Where that is not enough,
// package schedule claims fires instead of locking jobs, and reads the same
// expressions. cron reads them in the host's zone, schedule in UTC.
package cronlock

import (
	"context"
	"errors"
	"log/slog"

	"github.com/robfig/cron/v3"

	"github.com/mongolock/mongolock"
)

// A Once wraps jobs.
type Once struct {
	locks  mongolock.Locker
	opts   []mongolock.AcquireOption
	logger *slog.Logger
}

// New makes a Once. Options are those of each lease: MinHold, TTL, Note.
func New(l mongolock.Locker, opts ...mongolock.AcquireOption) (*Once, error) {
	if l == nil {
		return nil, errors.New("cronlock: New: the locker is nil")
	}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("cronlock: New: a nil option")
		}
	}
	return &Once{locks: l, opts: opts, logger: slog.Default()}, nil
}

// LogTo takes the log lines in place of slog.Default().
func (o *Once) LogTo(logger *slog.Logger) { o.logger = logger }

// Wrap locks each run of a job under key, which every job has to itself. In a chain
// (cron.NewChain) it stands inside cron.Recover, which then sees the job's panics;
// the lock is given back all the same. What fails is logged, as cron has nobody to
// tell: a held key at the debug level.
func (o *Once) Wrap(key string) cron.JobWrapper {
	return o.WrapContext(context.Background(), key)
}

// WrapContext is Wrap for jobs that end with a context: for a ContextJob its own is
// the lease's, under ctx.
func (o *Once) WrapContext(ctx context.Context, key string) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ran, err := mongolock.TryDo(ctx, o.locks, key, func(ctx context.Context, _ *mongolock.Lease) error {
				if c, ok := job.(ContextJob); ok {
					return c.RunContext(ctx)
				}
				job.Run()
				return nil
			}, o.opts...)
			switch {
			case err != nil:
				o.logger.Warn("cronlock: a job failed, or its lock", "key", key, "ran", ran, "error", err)
			case !ran:
				o.logger.Debug("cronlock: another host is at it", "key", key)
			}
		})
	}
}

// A ContextJob is a job that learns when its lease is lost.
type ContextJob interface {
	cron.Job
	RunContext(ctx context.Context) error
}

// ContextFunc makes a function a ContextJob.
type ContextFunc func(ctx context.Context) error

// Run is RunContext without an end.
func (f ContextFunc) Run() { _ = f.RunContext(context.Background()) }

// RunContext calls f.
func (f ContextFunc) RunContext(ctx context.Context) error { return f(ctx) }
