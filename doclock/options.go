package doclock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
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

// Registry encodes and decodes the values. The default is the driver's own registry: a
// collection does not tell which one it was made with.
func Registry(r *bson.Registry) Option {
	return option(func(c *config) error {
		c.registry = r
		if r == nil {
			return errors.New("doclock: Registry(nil): must not be nil")
		}
		return nil
	})
}

// With passes options to the lease engine: the default TTL, the owner's name, a logger,
// an observer. Options of a single lease are arguments of the call that asks for it.
func With(opts ...mongolock.ClientOption) Option {
	return option(func(c *config) error { c.engine = append(c.engine, opts...); return nil })
}

// newConfig applies the options, and checks them together with the engine's.
func newConfig(opts []Option) (config, optionCheck, error) {
	c := config{field: "lock"}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("doclock: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(&c))
	}
	check, err := newOptionCheck(c.engine)
	return c, check, errors.Join(append(errs, err)...)
}

// An optionCheck checks the options of a lease before anything is sent. The engine keeps
// to itself what they ask for, but tells it to its store: so this is a client, on a
// store that notes each claim and grants none.
type optionCheck struct{ client *mongolock.Client }

func newOptionCheck(opts []mongolock.ClientOption) (optionCheck, error) {
	client, err := mongolock.NewWithStore(claimNoter{}, append(opts[:len(opts):len(opts)], mongolock.WithObserver(noObserver{}))...)
	return optionCheck{client}, err
}

// check refuses bad options, and those that ask for more than one holder.
func (o optionCheck) check(opts []mongolock.AcquireOption) error {
	if len(opts) == 0 {
		return nil
	}
	var noted store.Claim
	_, err := o.client.TryAcquire(context.WithValue(context.Background(), notedKey{}, &noted), "options", opts...)
	switch {
	case noted.ID == "": // no claim was made of them
		return err
	case noted.Mode != store.Exclusive:
		return fmt.Errorf("doclock: Shared and OneOf: a document has one holder at a time: %w", errors.ErrUnsupported)
	}
	return nil
}

// A claimNoter is the store of an optionCheck. Of a store's methods the engine calls
// only Acquire, as nothing is ever granted nor left behind.
type claimNoter struct{ store.Store }

type notedKey struct{}

func (claimNoter) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	*ctx.Value(notedKey{}).(*store.Claim) = c
	return store.Grant{}, store.ErrNotApplied
}

// A noObserver keeps these claims from the caller's observer.
type noObserver struct{}

func (noObserver) Begin(ctx context.Context, _ mongolock.Op, _ string) (context.Context, func(mongolock.Outcome)) {
	return ctx, func(mongolock.Outcome) {}
}
