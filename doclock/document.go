package doclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// A Document is a document that this process has locked. Value is what it held when
// it was locked, without the lock; change it and Save. Its methods may be called
// from several goroutines, one at a time of which uses Value.
type Document[T any] struct {
	Value T

	locks    *Locks[T]
	lease    *mongolock.Lease
	id       bson.RawValue
	attempts int

	mu     sync.Mutex        // protects what follows, and lets one save at a time through
	loaded []bson.RawElement // the fields as the document has them
	doubt  bool              // or may have: of a transaction, or of a fault, nobody knows the outcome
	saves  int               // that were sent
}

// Lease is the lock: its context ends when the lease does, its token is greater
// than those of all earlier leases of the document. To give it back with nothing
// saved, Release it here or there.
func (d *Document[T]) Lease() *mongolock.Lease { return d.lease }

// ID is the document's _id, as it stands in the database.
func (d *Document[T]) ID() bson.RawValue { return d.id }

// Save writes Value and keeps the lock: the top-level fields that changed since it
// was loaded or saved last, in one command that asks that the lease still be there.
// If it is not, nothing is written and the error matches mongolock.ErrLost.
//
// A session in ctx takes part, and a transaction: if that is aborted the document
// is as it was, and locked.
//
// An error that matches mongolock.ErrOutcomeUnknown leaves open whether it was
// written, or will be; the lock is still held, and Save may be repeated. What a
// later Save has written a late one does not undo.
func (d *Document[T]) Save(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, elements, err := d.changes()
	if err != nil {
		return err
	}
	d.saves++
	c.number = d.saves
	err = d.send(ctx, c, nil)
	d.saved(elements, err, inTransaction(ctx))
	if err != nil {
		return d.failed(ctx, "save", err)
	}
	return nil
}

// saved notes what the document has by now. After a save that may come to nothing
// the next writes all there is. With d.mu held.
func (d *Document[T]) saved(elements []bson.RawElement, err error, undecided bool) {
	switch {
	case err == nil && !undecided:
		d.loaded, d.doubt = elements, false
	case err == nil || !store.IsCertain(err):
		d.loaded, d.doubt = append(d.loaded[:len(d.loaded):len(d.loaded)], elements...), true
	}
}

func inTransaction(ctx context.Context) bool {
	session := mongo.SessionFromContext(ctx)
	return session != nil && session.TransactionRunning()
}

// SaveAndRelease writes Value and frees the document in one step: nobody sees the
// new value locked, nor the old one free. If the lease is lost, nothing is written
// and the error matches mongolock.ErrLost.
//
// An error that matches mongolock.ErrOutcomeUnknown leaves open whether it was
// written. As any release it then goes on in the background, and until it is
// through, or the lease's time is over, nobody else gets the document.
//
// In a transaction the step is part of it, and the lease goes on until Release is
// called after the end of the transaction, or until a renewal finds that it was
// committed. Aborted, the document is as it was, and locked.
func (d *Document[T]) SaveAndRelease(ctx context.Context) error {
	return d.finish(ctx, "save and release", &ending{})
}

// Release frees the document with nothing saved. See mongolock's Lease.Release.
func (d *Document[T]) Release() error { return d.lease.Release() }

func (d *Document[T]) ref() store.Ref {
	return store.Ref{Key: d.lease.Key(), ID: d.lease.ID(), Mode: store.Exclusive}
}

// changes is what is to be saved, unless the lease is over.
func (d *Document[T]) changes() (*change, []bson.RawElement, error) {
	if err := d.lease.Err(); err != nil {
		return nil, nil, fmt.Errorf("doclock: save %s: %w", d.lease.Key(), err)
	}
	return d.locks.codec.changes(d.id, d.loaded, d.Value, d.doubt)
}

// send runs a save under the caller's context, which the lease's end cancels too.
func (d *Document[T]) send(ctx context.Context, c *change, e *ending) error {
	if ctx.Err() != nil {
		return mongoerr.NotApplied(context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(d.lease.Context(ctx), 10*time.Second)
	defer cancel()
	return d.locks.store.save(ctx, d.ref(), c, e)
}

// finish ends the lease with what e says and, unless it removes the document, the
// value saved.
func (d *Document[T]) finish(ctx context.Context, op string, e *ending) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, elements, err := d.changes()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("doclock: %s %s: %w", op, d.lease.Key(), context.Cause(ctx))
	}
	e.changes = c
	s := d.locks.store
	if inTransaction(ctx) {
		err := d.send(ctx, nil, e)
		d.saved(elements, err, true)
		if err != nil {
			return d.failed(ctx, op, err)
		}
		s.leftInTransaction(d.lease)
		return nil
	}
	e.session = mongo.SessionFromContext(ctx)
	if !s.end(d.lease.ID(), e) {
		return fmt.Errorf("doclock: %s %s: %w", op, d.lease.Key(), mongolock.ErrReleased)
	}
	err = d.lease.Release() // a lost answer has the engine repeat it, with e, until one comes
	switch {
	case s.hasLanded(e):
		d.loaded = elements
		return nil
	case err == nil: // no longer there, after a command whose answer was lost
		return fmt.Errorf("doclock: %s %s: %w", op, d.lease.Key(), mongolock.ErrOutcomeUnknown)
	}
	return err
}

// failed says what the error of a save means. In a transaction the driver's own
// comes back as it is: its labels steer Session.WithTransaction.
func (d *Document[T]) failed(ctx context.Context, op string, err error) error {
	what := fmt.Sprintf("doclock: %s %s", op, d.lease.Key())
	broken, isBroken := errors.AsType[*store.BrokenError](err)
	switch {
	case isBroken:
		return fmt.Errorf("%s: %w: %s", what, mongolock.ErrBroken, broken.Reason)
	case errors.Is(err, store.ErrGone):
		return fmt.Errorf("%s: %w: the document is no longer locked by it", what, mongolock.ErrLost)
	case inTransaction(ctx):
		return err
	case store.IsCertain(err):
		return fmt.Errorf("%s: %w", what, err)
	}
	return errors.Join(fmt.Errorf("%s: %w: %w", what, mongolock.ErrOutcomeUnknown, err), d.lease.Err())
}

// leftInTransaction notes that the caller's transaction, if it is committed, has
// released the lease: that a renewal then finds nothing is no loss.
func (s *docStore) leftInTransaction(lease *mongolock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, ok := s.granted[lease.ID()]; ok {
		g.gone, g.goneAt = func() { _ = lease.Release() }, s.base.Clock.Now()
		s.granted[lease.ID()] = g
	}
}

// A Claimed is a document that this process has claimed from many.
type Claimed[T any] struct{ *Document[T] }

// Attempts is how often the document was claimed, this time included.
func (c *Claimed[T]) Attempts() int { return c.attempts }

// Complete saves Value and frees the document, which is never claimed again, in one
// step. Its lock stays behind with the mark that says so. Errors, sessions and
// transactions are as for SaveAndRelease, also of Remove and Requeue.
func (c *Claimed[T]) Complete(ctx context.Context) error {
	return c.finish(ctx, "complete", &ending{done: true})
}

// Remove removes the document, in one step with its lock.
func (c *Claimed[T]) Remove(ctx context.Context) error {
	return c.finish(ctx, "remove", &ending{remove: true})
}

// Requeue saves Value and frees the document, in one step, to be claimed again no
// sooner than after: by the server's clock, and from 0 to a year.
func (c *Claimed[T]) Requeue(ctx context.Context, after time.Duration) error {
	if after < 0 || after > 365*24*time.Hour {
		return fmt.Errorf("doclock: Requeue(%v): must be from 0 to a year", after)
	}
	return c.finish(ctx, "requeue", &ending{requeue: true, after: after})
}
