package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// The defaults of the options.
const (
	defaultDrain  = 10 * time.Second
	defaultGrace  = 10 * time.Second
	defaultSettle = 5 * time.Second
)

// maxWeight is the greatest weight of a worker.
const maxWeight = 1000

// An Option changes a worker.
type Option interface{ apply(*config) error }

type config struct {
	weight  int
	prepare Func          // nil: nothing
	drain   time.Duration // 0: the worker stops at once
	grace   time.Duration
	settle  time.Duration
	logger  *slog.Logger
	acquire []mongolock.AcquireOption // of every lease

	maxStall time.Duration // of a partition; 0: Progress is not required
}

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

// Weight gives this worker w times as many partitions as one of weight 1, which is the default. It is
// at most 1,000.
func Weight(w int) Option {
	return option(func(c *config) error {
		if c.weight = w; w < 1 || w > maxWeight {
			return fmt.Errorf("assign: Weight(%d): must be from 1 to %d", w, maxWeight)
		}
		return nil
	})
}

// Prepare calls f before this worker asks for a partition: to load what the work needs. The process
// that has the partition goes on meanwhile. The Partition has no token and no lease yet. If f fails it
// is called again after a pause, which is 30 s after ten failures in a row; then Run gives up if f has
// not succeeded for any partition (ErrUnprepared). The partition may go elsewhere after all: then the
// context ends and f has to return within Grace, or the work is never called.
//
// Four partitions of other processes are prepared at a time, and another one for each that takes longer
// than 5 s. Those that no process has, after a crash or when a drain's time is over, wait for their Prepare
// alone: all of them are prepared at once. If that is too much, let f take turns. It has to end by a
// deadline of its own.
func Prepare(f Func) Option {
	return option(func(c *config) error {
		if c.prepare = f; f == nil {
			return errors.New("assign: Prepare(nil): must not be nil")
		}
		return nil
	})
}

// Drain is how long a worker goes on at most when the context of Run has ended, until others have
// asked for its partitions: by default 10 s. It hands over each when it is asked for. Afterwards, and if
// there is no other worker, it stops. A process needs Drain and Grace together to end, and some ten
// seconds more if the database hangs. With Drain(0) it stops at once.
func Drain(d time.Duration) Option {
	return option(func(c *config) error { c.drain = d; return notNegative("Drain", d) })
}

// Grace is how long the work of a partition, or its Prepare, may take to return when its context has
// ended: by default 10 s. Afterwards the partition is given up although the function goes on, and Run
// returns ErrHung when it has handed over all other partitions. If that is shorter than the client's
// margin, so is the time from the context's end until another worker has the partition.
func Grace(d time.Duration) Option {
	return option(func(c *config) error {
		if c.grace = d; d <= 0 {
			return fmt.Errorf("assign: Grace(%v): must be positive", d)
		}
		return nil
	})
}

// With sets options of the leases: TTL, and MaxHold and MaxStall of those of partitions. They add to those of the
// client. When one of the latter has ended a lease the worker asks for the partition again, once the work has
// returned, and after a pause. Others are refused by name.
func With(opts ...mongolock.AcquireOption) Option {
	return option(func(c *config) error {
		own, err := inside.TermsOf(nil, "partition", opts)
		if err == nil && (own.Mode != store.Exclusive || own.MinHold > 0 || own.MaxWait > 0 || own.NoRenewal || own.Note != "") {
			err = errors.New("only TTL, MaxHold and MaxStall can be set")
		}
		if c.acquire = append(c.acquire, opts...); err != nil {
			return fmt.Errorf("assign: With: %w", err)
		}
		return nil
	})
}

// Settle is how long no worker gives up a partition after another one came: by default 5 s. Meanwhile
// those that come have only partitions that no worker has. A deploy that starts each process before
// it stops an old one, within that time, moves each partition once instead of twice. Use one value in all
// processes.
func Settle(d time.Duration) Option {
	return option(func(c *config) error { c.settle = d; return notNegative("Settle", d) })
}

// WithLogger sets where the worker logs, by default slog.Default().
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error {
		if c.logger = l; l == nil {
			return errors.New("assign: WithLogger(nil): must not be nil")
		}
		return nil
	})
}

func notNegative(option string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("assign: %s(%v): must not be negative", option, d)
	}
	return nil
}

// newConfig checks all options together.
func newConfig(client *mongolock.Client, opts []Option) (config, error) {
	c := config{weight: 1, drain: defaultDrain, grace: defaultGrace, settle: defaultSettle, logger: slog.Default()}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("assign: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(&c))
	}
	terms, _ := inside.TermsOf(client, "partition", c.acquire) // With has told what is wrong
	c.maxStall = terms.MaxStall
	return c, errors.Join(errs...)
}

// A Func is the work of a partition.
type Func func(ctx context.Context, p Partition) error
