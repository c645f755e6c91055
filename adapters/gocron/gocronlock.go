package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-co-op/gocron/v2"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// ErrNotLeader answers IsLeader on a host that does not lead. gocron then skips the job.
var ErrNotLeader = errors.New("gocronlock: another host leads")

// A Locker implements gocron.Locker with leases. NewLocker makes one.
type Locker struct {
	locks  mongolock.Locker
	lease  []mongolock.AcquireOption
	logger *slog.Logger
}

var (
	_ gocron.Locker  = (*Locker)(nil)
	_ gocron.Elector = (*Elector)(nil)
)

// An Option changes a Locker.
type Option interface{ apply(*Locker) error }

type option func(*Locker) error

func (o option) apply(l *Locker) error { return o(l) }

// With sets options of each run's lease: mongolock.MinHold, TTL, Note. Shared and OneOf are refused:
// several hosts would run the job at the same time.
func With(opts ...mongolock.AcquireOption) Option {
	return option(func(l *Locker) error {
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
	errs = append(errs, checkLease(locker.lease))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return locker, nil
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
		return fmt.Errorf("gocronlock: With: %w", err)
	}
	switch status, err := client.Inspect(ctx, "job"); {
	case err != nil:
		return err
	case status.Mode == store.Shared:
		return errors.New("gocronlock: With(Shared()): several hosts would run the job at the same time")
	case status.Mode == store.Permits:
		return errors.New("gocronlock: With(OneOf): several hosts would run the job at the same time")
	}
	return nil
}

// Lock asks for the key once. After an error (mongolock.ErrHeld if another host runs the job)
// gocron skips the run, and tells the job's gocron.AfterLockError why.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.locks.TryAcquire(ctx, key, l.lease...)
	if err != nil {
		return nil, err
	}
	return &lock{lease: lease, logger: l.logger}, nil
}

type lock struct {
	lease  *mongolock.Lease
	logger *slog.Logger
}

// Unlock releases the lease. It ignores its context, which gocron has already cancelled at
// Shutdown, StopJobs and RemoveJob; a release is bounded by itself. gocron drops the error, so
// Unlock logs it.
func (l *lock) Unlock(context.Context) error {
	err := l.lease.Release()
	switch {
	case errors.Is(err, mongolock.ErrLost):
		l.logger.Warn("gocronlock: the lease was lost while the job ran", "lease", l.lease, "error", err)
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
