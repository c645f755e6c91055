// Package cronlock makes several hosts run each job of robfig/cron v3 once: it runs a
// job under a lock on MongoDB.
//
//	once, err := cronlock.New(client, cronlock.With(mongolock.MinHold(30*time.Second)))
//	c := cron.New()
//	c.AddJob("0 3 * * *", once.Wrap("nightly-report")(job))
//
// A host that finds the key held skips the run. The key is free again when the job is done. So
// a host whose clock is late by more than the job takes would run the job a second time.
// mongolock.MinHold prevents that: it keeps the key for a given time from its grant on. That
// time should be longer than the hosts' clocks differ, and shorter than the job's period.
//
// Where that is not enough, use package schedule: it claims each due time of a job instead
// of locking the job, and reads the same expressions. (cron reads them in the host's
// time zone, schedule in UTC.)
package cronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/robfig/cron/v3"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A Once wraps jobs so that one host runs them at a time. New makes one.
type Once struct {
	locks  mongolock.Locker
	lease  []mongolock.AcquireOption
	logger *slog.Logger
}

// An Option changes a Once.
type Option interface{ apply(*Once) error }

type option func(*Once) error

func (o option) apply(once *Once) error { return o(once) }

// With sets options of each run's lease: mongolock.MinHold, TTL, Note. Shared and OneOf are refused:
// several hosts would run the job at the same time.
func With(opts ...mongolock.AcquireOption) Option {
	return option(func(once *Once) error {
		once.lease = append(once.lease, opts...)
		return nil
	})
}

// WithLogger sets the logger. The default is slog.Default(). A failed job is logged as a
// warning, and so is a lock that failed; a run that another host has is logged at the debug
// level.
func WithLogger(l *slog.Logger) Option {
	return option(func(once *Once) error {
		if l == nil {
			return errors.New("cronlock: WithLogger(nil): must not be nil")
		}
		once.logger = l
		return nil
	})
}

// New makes a Once that locks with l.
func New(l mongolock.Locker, opts ...Option) (*Once, error) {
	once := &Once{locks: l, logger: slog.Default()}
	var errs []error
	if l == nil {
		errs = append(errs, errors.New("cronlock: New: the locker is nil"))
	}
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("cronlock: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(once))
	}
	errs = append(errs, checkLease(once.lease))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return once, nil
}

// checkLease asks a store in memory what the options of a lease come to.
func checkLease(opts []mongolock.AcquireOption) error {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.WithMargin(0))
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it is in memory
	if _, err := client.TryAcquire(ctx, "job", opts...); err != nil {
		return fmt.Errorf("cronlock: With: %w", err)
	}
	switch status, err := client.Inspect(ctx, "job"); {
	case err != nil:
		return err
	case status.Mode == store.Shared:
		return errors.New("cronlock: With(Shared()): several hosts would run the job at the same time")
	case status.Mode == store.Permits:
		return errors.New("cronlock: With(OneOf): several hosts would run the job at the same time")
	}
	return nil
}

// Wrap returns a wrapper that runs a job under the lock of a key. Each job needs a key
// of its own.
//
// Errors are logged, because cron does not take them. In a chain (cron.NewChain) put the
// wrapper inside cron.Recover, which then sees a panic of the job; the lock is released all the
// same.
func (o *Once) Wrap(key string) cron.JobWrapper {
	return o.WrapContext(context.Background(), key)
}

// WrapContext is Wrap with a context: it bounds each run, and a ContextJob gets the
// context of its lease, made from ctx.
func (o *Once) WrapContext(ctx context.Context, key string) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ran, err := mongolock.TryDo(ctx, o.locks, key, func(ctx context.Context, _ *mongolock.Lease) error {
				if c, ok := job.(ContextJob); ok {
					return c.RunContext(ctx)
				}
				job.Run()
				return nil
			}, o.lease...)
			switch {
			case err != nil:
				o.logger.Warn("cronlock: the job or its lock failed", "key", key, "ran", ran, "error", err)
			case !ran:
				o.logger.Debug("cronlock: another host runs the job", "key", key)
			}
		})
	}
}

// A ContextJob is a job with a context, which ends when the lease is lost.
type ContextJob interface {
	cron.Job
	// RunContext runs the job until ctx ends or the work is done.
	RunContext(ctx context.Context) error
}

// ContextFunc makes a ContextJob from a function.
type ContextFunc func(ctx context.Context) error

// Run calls f with a context that never ends.
func (f ContextFunc) Run() { _ = f.RunContext(context.Background()) }

// RunContext calls f.
func (f ContextFunc) RunContext(ctx context.Context) error { return f(ctx) }
