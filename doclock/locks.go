package doclock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// Locks locks documents of one collection, whose values are of type T. Make one per process and
// collection and share it: it is safe for concurrent use. Two Locks with different fields are
// different locks on the same documents.
type Locks[T any] struct {
	store  *docStore
	client *mongolock.Client
	codec  codec[T]
	pools  pools
	unique unique

	lease       []mongolock.AcquireOption // of every lock, before those of a call
	maxAttempts int                       // how often a document may be claimed; 0: any number
	logger      *slog.Logger
}

// New makes Locks on the documents of coll. It sends nothing yet, and checks all options
// together. The library sends with its own write concern, read concern and read
// preference, except in a transaction, which has its own.
//
// Close it before the database connection.
func New[T any](coll *mongo.Collection, opts ...Option) (*Locks[T], error) {
	conf, err := newConfig(opts)
	errs := []error{err}
	s := new(docStore)
	if coll == nil {
		errs = append(errs, errors.New("doclock: New: the collection is nil"))
	} else {
		s = newDocStore(coll, conf.field)
	}
	c := codec[T]{field: conf.field, registry: conf.registry}
	client, err := mongolock.NewWithStore(s, conf.engine...)
	if err := errors.Join(append(errs, c.check(), err)...); err != nil {
		return nil, err
	}
	terms, err := inside.TermsOf(client, "document", []mongolock.AcquireOption(nil))
	if err != nil {
		return nil, err
	}
	l := &Locks[T]{store: s, client: client, codec: c, lease: conf.lease, maxAttempts: conf.maxAttempts, logger: terms.Logger}
	s.base.LogTo(l.logger)
	l.pools.begin(s)
	return l, nil
}

// Acquire waits until it has locked the document that filter names, and returns it as it was at
// that moment. The wait ends as in mongolock's Acquire. If there is no such document, or it is
// removed meanwhile, the error is ErrNotFound.
//
// The filter names the document by the value of its _id or of the fields of a unique
// index. With any other filter the document is looked up first; if several match, the
// error is ErrAmbiguous.
//
// A transaction in ctx is left alone: the lock is granted outside of it.
func (l *Locks[T]) Acquire(ctx context.Context, filter any, opts ...mongolock.AcquireOption) (*Document[T], error) {
	return l.acquire(ctx, filter, nil, how{wait: true}, opts)
}

// TryAcquire is Acquire without waiting: it returns a *mongolock.HeldError if the document is
// held.
func (l *Locks[T]) TryAcquire(ctx context.Context, filter any, opts ...mongolock.AcquireOption) (*Document[T], error) {
	return l.acquire(ctx, filter, nil, how{}, opts)
}

// AcquireOrCreate is Acquire, but creates the document, locked, if it does not exist: from the
// fields of the filter and those of initial, in the same step. A filter without _id must name
// the fields of a unique index; otherwise two documents might be created.
func (l *Locks[T]) AcquireOrCreate(ctx context.Context, filter any, initial T, opts ...mongolock.AcquireOption) (*Document[T], error) {
	return l.acquire(ctx, filter, &initial, how{wait: true}, opts)
}

// TryAcquireOrCreate is AcquireOrCreate without waiting.
func (l *Locks[T]) TryAcquireOrCreate(ctx context.Context, filter any, initial T, opts ...mongolock.AcquireOption) (*Document[T], error) {
	return l.acquire(ctx, filter, &initial, how{}, opts)
}

// how says in which way a document is asked for.
type how struct {
	wait bool
	soft bool // for Update: see request
}

func (l *Locks[T]) acquire(ctx context.Context, filter any, initial *T, by how, opts []mongolock.AcquireOption) (*Document[T], error) {
	key, fields, err := keyOf(filter)
	if err := errors.Join(err, l.check(opts)); err != nil {
		return nil, err
	}
	var insert bson.D
	if initial != nil {
		if insert, err = l.codec.initial(*initial, fields); err != nil {
			return nil, err
		}
	}
	if key, fields, err = l.one(ctx, key, fields, initial != nil); err != nil {
		return nil, err
	}
	ask := l.client.TryAcquire
	if by.wait && isID(key) {
		ask = l.client.Acquire
	}
	opts = l.with(opts)
	for {
		r := &request{fields: fields, create: initial != nil, initial: insert, soft: by.soft}
		lease, err := ask(context.WithValue(ctx, requestKey{}, r), key, opts...)
		if id := r.seen.Load(); by.wait && !isID(key) && errors.Is(err, mongolock.ErrHeld) && id != nil && !id.IsZero() {
			lease, r, err = l.await(ctx, *id, fields, by, opts)
			if errors.Is(err, ErrNotFound) && ctx.Err() == nil {
				continue // another document may have these values by now, or none
			}
		}
		if err != nil {
			return nil, err
		}
		return l.document(lease, r)
	}
}

// await waits for the document that refused a claim by the fields of a unique index. It waits
// under the _id, as all waiters for that document do, and as long as the document has these
// values.
func (l *Locks[T]) await(ctx context.Context, id bson.RawValue, fields bson.D, by how, opts []mongolock.AcquireOption) (*mongolock.Lease, *request, error) {
	key, err := keyOfID(id)
	if err != nil {
		return nil, nil, err
	}
	r := &request{fields: append(ID(id), fields...), soft: by.soft}
	lease, err := l.client.Acquire(context.WithValue(ctx, requestKey{}, r), key, opts...)
	return lease, r, err
}

// document makes a Document of a grant, or releases a document that does not decode.
func (l *Locks[T]) document(lease *mongolock.Lease, r *request) (*Document[T], error) {
	raw := r.document(lease.ID())
	d := &Document[T]{locks: l, lease: lease, id: raw.Lookup("_id")}
	value, err := l.codec.decode(raw)
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	d.Value = value
	lock := readLock(raw, string(l.store.lock))
	d.attempts = lock.attempts
	for _, h := range lock.Holders {
		d.holder = mongolock.Holder{ID: h.ID, Owner: h.Owner, Note: h.Note, Since: h.Since, ExpireAt: h.ExpireAt}
	}
	if raw, err := l.codec.encode(value); err == nil { // otherwise a save will report the error
		d.has = saved{raw}
	}
	return d, nil
}

// Shutdown ends all waits, cancels the contexts of all leases, waits until their holders
// have released them or ctx ends, and closes.
func (l *Locks[T]) Shutdown(ctx context.Context) error {
	l.pools.close()
	defer l.pools.feed.Close()
	return l.client.Shutdown(ctx)
}

// Close ends and releases every lease, as mongolock's Close does. Later calls return
// mongolock.ErrClosed.
func (l *Locks[T]) Close() error {
	l.pools.close()
	defer l.pools.feed.Close()
	return l.client.Close()
}

// one returns the key of the one document that the filter names, and the fields to claim it by.
// If the filter's fields are _id or those of a unique index, they are the filter's. Otherwise
// the document is looked up, and named by its _id too.
func (l *Locks[T]) one(ctx context.Context, key string, fields bson.D, create bool) (string, bson.D, error) {
	if isID(key) || ctx.Err() != nil { // for the latter the engine's error says more
		return key, fields, nil
	}
	ctx, cancel := context.WithTimeout(server.Bare(ctx), 10*time.Second)
	defer cancel()
	proved, err := l.unique.proves(ctx, l.store.base, fields)
	switch {
	case err != nil:
		return "", nil, err
	case proved:
		return key, fields, nil
	case create:
		return "", nil, fmt.Errorf("%w: %s: without a unique index on them two documents might be created", ErrAmbiguous, names(fields))
	}
	return only(ctx, l.store.base, fields)
}
