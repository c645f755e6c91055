package doclock

import (
	"errors"
	"fmt"
	"strings"

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

	maxAttempts int // 0: any number
}

// Field names the top-level field that holds the lock, "lock" by default. The
// application must have no other use for it. On FerretDB, whose clock writes only
// top-level fields, the same holds for the fields of that name with _at and _stamp added.
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
// completed. If processes differ, the lowest number counts.
func MaxAttempts(n int) Option {
	return option(func(c *config) error {
		c.maxAttempts = n
		if n < 1 {
			return fmt.Errorf("doclock: MaxAttempts(%d): must be positive", n)
		}
		return nil
	})
}

// With passes options to the lease engine: the default TTL, the owner's name, a logger, an
// observer. Options of a single lease are arguments of the call that asks for it.
func With(opts ...mongolock.ClientOption) Option {
	return option(func(c *config) error { c.engine = append(c.engine, opts...); return nil })
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

// check refuses bad options of a lease, and those that would allow more than one holder, before
// anything is sent.
func (l *Locks[T]) check(opts []mongolock.AcquireOption) error {
	if len(opts) == 0 {
		return nil
	}
	terms, err := inside.TermsOf(l.client, "document", opts)
	switch {
	case err != nil:
		return err
	case terms.Mode != store.Exclusive:
		return fmt.Errorf("doclock: Shared and OneOf: a document has one holder at a time: %w", errors.ErrUnsupported)
	case terms.Linger > 0:
		return fmt.Errorf("doclock: Linger(%v): a lock that is kept has an old document: %w", terms.Linger, errors.ErrUnsupported)
	}
	return nil
}
