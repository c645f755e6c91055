package gocronlock

import (
	"context"
	"errors"
	"log/slog"

	"github.com/go-co-op/gocron/v2"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
)

// ErrNotLeader answers IsLeader on a host that does not lead. gocron then skips the job.
var ErrNotLeader = errors.New("gocronlock: another host leads")

// A Locker implements gocron.Locker with leases. NewLocker makes one.
type Locker struct {
	locks   mongolock.Locker
	lease   []mongolock.AcquireOption
	logger  *slog.Logger
	monitor *Monitor // nil: there is no monitor
}

var (
	_ gocron.Locker  = (*Locker)(nil)
	_ gocron.Elector = (*Elector)(nil)
)

// An Option changes a Locker.
type Option interface{ apply(*Locker) error }

type option func(*Locker) error

func (o option) apply(l *Locker) error { return o(l) }

// Lease sets the options of each run's lease: mongolock.MinHold, TTL, Note.
func Lease(opts ...mongolock.AcquireOption) Option {
	return option(func(l *Locker) error {
		for _, o := range opts {
			if o == nil {
				return errors.New("gocronlock: Lease: a nil AcquireOption")
			}
		}
		l.lease = append(l.lease, opts...)
		return nil
	})
}

// WithLogger sets the logger. The default is slog.Default().
func WithLogger(logger *slog.Logger) Option {
	return option(func(l *Locker) error {
		if logger == nil {
			return errors.New("gocronlock: WithLogger(nil): must not be nil")
		}
		l.logger = logger
		return nil
	})
}

// NewLocker makes a Locker that locks with l.
func NewLocker(l mongolock.Locker, opts ...Option) (*Locker, error) {
	locker := &Locker{locks: l, logger: slog.Default()}
	var errs []error
	if l == nil {
		errs = append(errs, errors.New("gocronlock: NewLocker: the locker is nil"))
	}
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("gocronlock: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(locker))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return locker, nil
}

// Lock asks for the key once. After an error (mongolock.ErrHeld if another host runs the job)
// gocron skips the run; gocron's own events report it, and a Monitor.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.locks.TryAcquire(ctx, key, l.lease...)
	if err != nil {
		l.monitor.refused(key, err)
		return nil, err
	}
	return &lock{lease: lease, logger: l.logger, monitor: l.monitor}, nil
}

type lock struct {
	lease   *mongolock.Lease
	logger  *slog.Logger
	monitor *Monitor
}

// Unlock releases the lease. It ignores its context, which gocron has already cancelled at
// Shutdown, StopJobs and RemoveJob; a release is bounded by itself. gocron drops the error, so
// Unlock logs it.
func (l *lock) Unlock(context.Context) error {
	err := l.lease.Release()
	switch {
	case errors.Is(err, mongolock.ErrLost):
		l.logger.Warn("gocronlock: the lease was lost while the job ran", "lease", l.lease, "error", err)
		l.monitor.lost(l.lease.Key(), err)
	case err != nil:
		l.logger.Warn("gocronlock: the lock is not released yet; the client goes on trying", "lease", l.lease, "error", err)
	}
	return err
}

// An Elector implements gocron.Elector with a candidate of package leader. The program
// has to call the candidate's Run.
type Elector struct{ candidate *leader.Candidate }

// NewElector makes an Elector.
func NewElector(c *leader.Candidate) (*Elector, error) {
	if c == nil {
		return nil, errors.New("gocronlock: NewElector: the candidate is nil")
	}
	return &Elector{c}, nil
}

// IsLeader returns nil while this host leads, and ErrNotLeader otherwise. It sends
// nothing.
func (e *Elector) IsLeader(context.Context) error {
	if e.candidate.IsLeader() {
		return nil
	}
	return ErrNotLeader
}
