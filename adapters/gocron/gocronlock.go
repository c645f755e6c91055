package gocronlock

import (
	"context"
	"errors"
	"log/slog"

	"github.com/go-co-op/gocron/v2"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
)

// ErrNotLeader: IsLeader of a host that does not lead. gocron skips the job.
var ErrNotLeader = errors.New("gocronlock: another host leads")

// A Locker is gocron's, on leases.
type Locker struct {
	locks  mongolock.Locker
	opts   []mongolock.AcquireOption
	logger *slog.Logger
}

var (
	_ gocron.Locker  = (*Locker)(nil)
	_ gocron.Elector = (*Elector)(nil)
)

// NewLocker makes a Locker. Options are those of each lease: MinHold, TTL, Note.
func NewLocker(l mongolock.Locker, opts ...mongolock.AcquireOption) (*Locker, error) {
	if l == nil {
		return nil, errors.New("gocronlock: NewLocker: the locker is nil")
	}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("gocronlock: NewLocker: a nil option")
		}
	}
	return &Locker{locks: l, opts: opts, logger: slog.Default()}, nil
}

// LogTo takes the log lines in place of slog.Default().
func (l *Locker) LogTo(logger *slog.Logger) { l.logger = logger }

// Lock asks once. Its error (mongolock.ErrHeld, if another host is at the job) has
// gocron skip the run; gocron's own events tell of it.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.locks.TryAcquire(ctx, key, l.opts...)
	if err != nil {
		return nil, err
	}
	return &lock{lease: lease, logger: l.logger}, nil
}

type lock struct {
	lease  *mongolock.Lease
	logger *slog.Logger
}

// Unlock gives the lease back. The context is of no account: gocron's is cancelled
// already at Shutdown, StopJobs and RemoveJob, and releasing has a bound of its own.
// gocron drops the error, so it is logged.
func (l *lock) Unlock(context.Context) error {
	err := l.lease.Release()
	switch {
	case errors.Is(err, mongolock.ErrLost):
		l.logger.Warn("gocronlock: the lease was lost under the job", "lease", l.lease, "error", err)
	case err != nil:
		l.logger.Warn("gocronlock: the lock is not given back yet, going on in the background", "lease", l.lease, "error", err)
	}
	return err
}

// An Elector is gocron's, on a candidate of package leader, whose Run somebody has to
// run.
type Elector struct{ candidate *leader.Candidate }

// NewElector makes an Elector.
func NewElector(c *leader.Candidate) (*Elector, error) {
	if c == nil {
		return nil, errors.New("gocronlock: NewElector: the candidate is nil")
	}
	return &Elector{c}, nil
}

// IsLeader is nil while this host leads, by the clock.
func (e *Elector) IsLeader(context.Context) error {
	if e.candidate.IsLeader() {
		return nil
	}
	return ErrNotLeader
}
