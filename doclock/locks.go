package doclock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongobase"
)

// Locks locks documents of one collection, whose values are of type T. Make one per
// process and collection and share it: it is safe for concurrent use. Two with
// different fields are different locks on the same documents.
type Locks[T any] struct {
	store  *docStore
	client *mongolock.Client
	codec  codec[T]
	pools  pools
	unique unique
}

// An Option changes Locks.
type Option func(*config) error

type config struct {
	field    string
	registry *bson.Registry
	client   []mongolock.ClientOption
}

// Field names the field that the lock is kept in, "lock" by default. It must be a
// field that the application has no other use for.
func Field(name string) Option {
	return func(c *config) error {
		c.field = name
		if name == "" || name == "_id" || strings.HasPrefix(name, "$") || strings.ContainsAny(name, ".\x00") {
			return fmt.Errorf("doclock: Field(%q): must be the plain name of a field", name)
		}
		return nil
	}
}

// Registry is what values are encoded and decoded with, the driver's own by default:
// a collection does not tell what it was given.
func Registry(r *bson.Registry) Option {
	return func(c *config) error {
		c.registry = r
		if r == nil {
			return errors.New("doclock: Registry(nil): must not be nil")
		}
		return nil
	}
}

// With passes options on to the lease engine: the default TTL, the owner's name, a
// logger, an observer.
func With(opts ...mongolock.ClientOption) Option {
	return func(c *config) error { c.client = append(c.client, opts...); return nil }
}

// New makes Locks on the documents of coll. It sends nothing yet. Write concern,
// read concern and read preference of what it sends are the library's own, but for
// saves in a transaction, which has its own.
//
// Close it before the database connection.
func New[T any](coll *mongo.Collection, opts ...Option) (*Locks[T], error) {
	conf := config{field: "lock"}
	var errs []error
	if coll == nil {
		errs = append(errs, errors.New("doclock: New: the collection is nil"))
	}
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("doclock: a nil Option"))
			continue
		}
		errs = append(errs, o(&conf))
	}
	c := codec[T]{field: conf.field, registry: conf.registry}
	errs = append(errs, c.check())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s, err := newDocStore(coll, conf.field)
	if err != nil {
		return nil, err
	}
	client, err := mongolock.NewWithStore(s, conf.client...)
	if err != nil {
		return nil, err
	}
	l := &Locks[T]{store: s, client: client, codec: c}
	l.pools.begin(s)
	return l, nil
}

// Acquire waits until it has the document that filter names, and returns it as it
// stood when it was locked. It waits, and is bounded, like mongolock's Acquire; if
// there is no such document, or it is removed meanwhile, the error is ErrNotFound.
//
// The filter names the document by the values of its _id or of the fields of a
// unique index. One that might match several is looked up first, and refused
// (ErrAmbiguous) if it does.
//
// A transaction in ctx is left alone: the lock is granted outside of it.
func (l *Locks[T]) Acquire(ctx context.Context, filter any, opts ...mongolock.AcquireOption) (*Document[T], error) {
	return l.acquire(ctx, filter, nil, l.client.Acquire, opts)
}

// TryAcquire is Acquire without waiting: a *mongolock.HeldError if others hold the
// document.
func (l *Locks[T]) TryAcquire(ctx context.Context, filter any, opts ...mongolock.AcquireOption) (*Document[T], error) {
	return l.acquire(ctx, filter, nil, l.client.TryAcquire, opts)
}

// AcquireOrCreate is Acquire, but if there is no such document it is made, locked,
// in the same step: of the filter's fields and those of initial. Where the filter
// does not name _id it must name the fields of a unique index, or two might be made.
func (l *Locks[T]) AcquireOrCreate(ctx context.Context, filter any, initial T, opts ...mongolock.AcquireOption) (*Document[T], error) {
	return l.acquire(ctx, filter, &initial, l.client.Acquire, opts)
}

// TryAcquireOrCreate is AcquireOrCreate without waiting.
func (l *Locks[T]) TryAcquireOrCreate(ctx context.Context, filter any, initial T, opts ...mongolock.AcquireOption) (*Document[T], error) {
	return l.acquire(ctx, filter, &initial, l.client.TryAcquire, opts)
}

type acquirer func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error)

func (l *Locks[T]) acquire(ctx context.Context, filter any, initial *T, how acquirer, opts []mongolock.AcquireOption) (*Document[T], error) {
	key, fields, err := keyOf(filter)
	if err != nil {
		return nil, err
	}
	r := new(request)
	if initial != nil {
		r.create = true
		if r.initial, err = l.codec.initial(*initial, fields); err != nil {
			return nil, err
		}
	}
	if key, err = l.one(ctx, key, fields, r.create); err != nil {
		return nil, err
	}
	lease, err := how(context.WithValue(ctx, requestKey{}, r), key, opts...)
	if err != nil {
		return nil, err
	}
	return l.document(lease, r)
}

// document makes a Document of a grant, or gives it back if it does not decode.
func (l *Locks[T]) document(lease *mongolock.Lease, r *request) (*Document[T], error) {
	raw := r.take(lease.ID())
	d := &Document[T]{locks: l, lease: lease, id: raw.Lookup("_id")}
	value, err := l.codec.decode(raw)
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	d.Value = value
	d.attempts = readLock(raw, l.store.field).attempts
	d.loaded, _ = l.codec.encode(value) // what cannot be saved will say so
	return d, nil
}

// Shutdown ends the waits, cancels the contexts of all leases, waits for their
// release until ctx ends, and closes.
func (l *Locks[T]) Shutdown(ctx context.Context) error {
	l.pools.close()
	defer l.pools.feed.Close()
	return l.client.Shutdown(ctx)
}

// Close ends every lease and releases it, as mongolock's Close does. Later calls
// return mongolock.ErrClosed.
func (l *Locks[T]) Close() error {
	l.pools.close()
	defer l.pools.feed.Close()
	return l.client.Close()
}

// one answers the key of the one document that the filter names. Its fields may
// prove that there is but one: _id, or those of a unique index. Else the documents
// are looked at, and the key is that of the one there is.
func (l *Locks[T]) one(ctx context.Context, key string, fields bson.D, create bool) (string, error) {
	if fields[0].Key == "_id" || ctx.Err() != nil { // the engine says the latter better
		return key, nil
	}
	ctx, cancel := context.WithTimeout(mongobase.Bare(ctx), 10*time.Second)
	defer cancel()
	proved, err := l.unique.proves(ctx, l.store.base.Soft, fields)
	switch {
	case err != nil:
		return "", err
	case proved:
		return key, nil
	case create:
		return "", fmt.Errorf("%w: no unique index is on %s, so that two might be created", ErrAmbiguous, names(fields))
	}
	return only(ctx, l.store.base.Soft, fields)
}

// unique remembers for a while which fields name one document.
type unique struct {
	mu     sync.Mutex // protects proved
	proved map[string]time.Time
}
