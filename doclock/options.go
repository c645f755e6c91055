package doclock

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// An Option changes Locks.
type Option interface{ apply(*config) error }

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	field    string
	registry *bson.Registry
	engine   []mongolock.ClientOption
	lease    []mongolock.AcquireOption // those that a client has no default for

	maxAttempts int // 0: any number
}

// Field names the top-level field that holds the lock, "lock" by default. The
// application must have no other use for it.
func Field(name string) Option {
	return option(func(c *config) error {
		c.field = name
		if name == "" || name == "_id" || strings.HasPrefix(name, "$") || strings.ContainsAny(name, ".\x00") {
			return fmt.Errorf("doclock: Field(%q): must be the name of a top-level field other than _id", name)
		}
		return nil
	})
}

// Registry sets how the values are encoded and decoded. The default is the driver's own
// registry, because a collection does not tell which one it was made with.
func Registry(r *bson.Registry) Option {
	return option(func(c *config) error {
		c.registry = r
		if r == nil {
			return errors.New("doclock: Registry(nil): must not be nil")
		}
		return nil
	})
}

// MaxAttempts lets a document be claimed at most n times. If it has not been completed by then,
// the next claim sets it aside: the document stays where it is, with the mark lock.dead, and no
// worker gets it, as if it were completed. That also happens to a document that ends its
// worker, and to one that does not decode. The client's logger is told. Dead shows such
// documents, and Reopen brings them back. By default a document is claimed until it is
// completed. Work that was stopped does not count. If processes differ, the lowest number counts.
func MaxAttempts(n int) Option {
	return option(func(c *config) error {
		c.maxAttempts = n
		if n < 1 {
			return fmt.Errorf("doclock: MaxAttempts(%d): must be positive", n)
		}
		return nil
	})
}

// With sets options of every lock and claim: mongolock.TTL, MaxHold, MaxStall, MaxWait, Note. The
// options of a call override them. Shared and OneOf are refused by name, because a document has one holder at
// a time.
func With(opts ...mongolock.AcquireOption) Option {
	return option(func(c *config) error {
		for _, o := range opts {
			if def, ok := o.(mongolock.ClientOption); ok {
				c.engine = append(c.engine, def)
			} else {
				c.lease = append(c.lease, o)
			}
		}
		if err := checkLease(nil, c.lease); err != nil {
			return fmt.Errorf("doclock: With: %w", err)
		}
		return nil
	})
}

// WithLogger sets where the locks log, by default slog.Default(). A lost lock is a warning.
func WithLogger(l *slog.Logger) Option { return engine(mongolock.WithLogger(l)) }

// WithOwner names this process for people who look at its locks: 1 to 256 bytes of UTF-8, by default
// host/pid.
func WithOwner(name string) Option { return engine(mongolock.WithOwner(name)) }

// WithObserver sets an observer, for metrics and traces.
func WithObserver(o mongolock.Observer) Option { return engine(mongolock.WithObserver(o)) }

// WithMargin sets how long a lock ends for its holder before another process can be granted it. That
// is from 0 to half the TTL, by default the smaller of 1 s and a tenth of it, as in package mongolock.
func WithMargin(d time.Duration) Option { return engine(mongolock.WithMargin(d)) }

// WithoutFeed makes waiters poll instead of listening for wake-ups, as mongolock's does.
func WithoutFeed() Option { return engine(mongolock.WithoutFeed()) }

// engine passes an option to the lease engine, which checks it.
func engine(o mongolock.ClientOption) Option {
	return option(func(c *config) error { c.engine = append(c.engine, o); return nil })
}

// newConfig applies the options.
func newConfig(opts []Option) (config, error) {
	c := config{field: "lock"}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("doclock: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(&c))
	}
	return c, errors.Join(errs...)
}

// with returns the options of a lease, those of the call last.
func (l *Locks[T]) with(opts []mongolock.AcquireOption) []mongolock.AcquireOption {
	if len(l.lease) == 0 {
		return opts
	}
	return slices.Concat(l.lease, opts)
}

// check refuses bad options of a lease, and those that would allow more than one holder, before
// anything is sent.
func (l *Locks[T]) check(opts []mongolock.AcquireOption) error {
	if len(opts) == 0 {
		return nil
	}
	return checkLease(l.client, opts)
}

// checkLease is check for a client, which may be nil.
func checkLease(client mongolock.Locker, opts []mongolock.AcquireOption) error {
	terms, err := inside.TermsOf(client, "document", opts)
	switch {
	case err != nil:
		return err
	case terms.Mode != store.Exclusive:
		return fmt.Errorf("doclock: Shared and OneOf: a document has one holder at a time: %w", errors.ErrUnsupported)
	}
	return nil
}
