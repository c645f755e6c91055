package mongostore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/feed"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A Store keeps the holders of each key in one document of a collection. New makes one.
type Store struct {
	base *command.Collection
	feed store.Feed

	noIndex    bool
	fit        atomic.Bool   // nothing was found against the collection
	unfit      server.Shared // for the question whether there is
	indexed    atomic.Bool   // the first grant made the index, or tried to
	indexTries atomic.Int32
	logger     *slog.Logger

	steps lease.Steps
	joins joinGates
}

// An Option changes a Store. New checks all of them together.
type Option interface{ apply(*config) error }

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	noIndex bool
	logger  *slog.Logger         // default: slog.Default()
	now     func() server.Moment // default: the monotonic clock; tests have their own
}

// WithoutIndex leaves making the TTL index to the caller: the first grant does not make it. The
// index only removes locks whose holders crashed, an hour after they ran out.
func WithoutIndex() Option {
	return option(func(c *config) error { c.noIndex = true; return nil })
}

// WithLogger sets where the store logs that the TTL index cannot be made, that the database's
// clock was stepped, or that its writes have no transaction numbers. It logs nothing else. The
// default is slog.Default().
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error {
		if l == nil {
			return errors.New("mongostore: WithLogger(nil): the logger is nil")
		}
		c.logger = l
		return nil
	})
}

// New makes a store whose locks are documents of coll: one per key, with the key as its _id. It
// sends nothing yet. The store sets its own write concern, read concern and read preference,
// whatever coll says.
func New(coll *mongo.Collection, opts ...Option) (*Store, error) {
	var conf config
	var errs []error
	if coll == nil {
		errs = append(errs, errors.New("mongostore: New: the collection is nil"))
	}
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("mongostore: New: option %d is nil", i+1))
			continue
		}
		errs = append(errs, o.apply(&conf))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return open(coll, conf), nil
}

func open(coll *mongo.Collection, conf config) *Store {
	if conf.logger == nil {
		conf.logger = slog.Default()
	}
	s := &Store{
		base:    command.New(coll, conf.now),
		noIndex: conf.noIndex,
		logger:  conf.logger,
	}
	s.feed = feed.Beside(s.base)
	s.steps.Coll, s.steps.Layout = s.base, layout
	s.base.LogTo(conf.logger)
	return s
}

func knownMode(mode store.Mode) error {
	switch mode {
	case store.Exclusive, store.Shared, store.Permits:
		return nil
	}
	return server.NotApplied(fmt.Errorf("mode %q: %w", mode, errors.ErrUnsupported))
}
