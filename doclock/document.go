package doclock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A Document is a document that this process has locked. Value is its content when it was
// locked, without the lock: change it and call Save. Several goroutines may call its methods,
// but only one at a time may use Value or call a method that saves it.
type Document[T any] struct {
	Value T

	locks    *Locks[T]
	lease    *mongolock.Lease
	id       bson.RawValue
	holder   mongolock.Holder
	attempts int

	mu    sync.Mutex // protects what follows; held for the whole of a save
	has   saved      // what the document may have of Value
	saves int        // saves that were sent
	ended bool       // in a transaction, whose commit releases the document
}

// Lease returns the document's lease: its context ends when the lease does, and its token is
// greater than those of all earlier leases of the document. Its Release releases the document
// and saves nothing. A ticket of its Detach is for Locks.Resume, which returns the document.
func (d *Document[T]) Lease() *mongolock.Lease { return d.lease }

// ID returns the document's _id as it is stored.
func (d *Document[T]) ID() bson.RawValue { return d.id }

// Save writes Value and keeps the lock. It writes the fields that changed since Value was
// loaded or last saved, in one command that requires the lease to be there. If the lease is
// lost, nothing is written and the error matches mongolock.ErrLost.
//
// Within an embedded document, too, only the fields that changed are written: fields that the
// type does not have, and those that others have set, stay. An array is written as a whole.
// Another order of the fields of an embedded document is not a change.
//
// A session or transaction in ctx takes part. If the transaction is aborted, the document is as
// it was before, and still locked.
//
// After an error that matches mongolock.ErrOutcomeUnknown, Value may or may not have been
// written, or may be written later. The lock is still held, and Save may be repeated: if the
// first save is applied after a later one, it changes nothing.
func (d *Document[T]) Save(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, value, err := d.changes()
	if err != nil {
		return err
	}
	d.saves++
	c.number = d.saves
	err = d.send(ctx, c, nil)
	d.noteSaved(value, err, inTransaction(ctx))
	if err != nil {
		return d.failed(ctx, "save", err)
	}
	return nil
}

// noteSaved records what the document has of Value after a save, or may have: the outcome of
// the save may be unknown, or that of its transaction undecided. Call it with d.mu held.
func (d *Document[T]) noteSaved(value bson.Raw, err error, undecided bool) {
	switch {
	case err == nil && !undecided:
		d.has = saved{value}
	case err == nil || !store.IsCertain(err):
		d.has = d.has.with(value)
	}
}

func inTransaction(ctx context.Context) bool {
	session := mongo.SessionFromContext(ctx)
	return session != nil && session.TransactionRunning()
}

// SaveAndRelease writes Value and releases the document in one step: the new value is never
// seen locked, nor the old one free. If the lease is lost, nothing is written and the error
// matches mongolock.ErrLost.
//
// After an error that matches mongolock.ErrOutcomeUnknown, Value may or may not have been
// written. Like any release, the step then goes on in the background until a reply comes or the
// lease's time is over; until then the document is granted to no other. After any other error
// nothing was written, and nothing will be; the document is released, also if ctx had ended before
// or Value cannot be encoded.
//
// In a transaction the step takes effect with the commit. The lease goes on until Release is
// called after the end of the transaction, or until a renewal finds that it was committed. If
// it is aborted, or the step fails, the document is as it was before, and still locked.
func (d *Document[T]) SaveAndRelease(ctx context.Context) error {
	return d.finish(ctx, "save and release", &ending{})
}

// Release releases the document and saves nothing. See mongolock's Lease.Release.
func (d *Document[T]) Release() error { return d.lease.Release() }

// Holder returns the acquisition that locked the document, as others see it: its owner, and
// since when it has the document by the server's clock. It is as it was when the document was
// locked.
func (d *Document[T]) Holder() mongolock.Holder { return d.holder }

func (d *Document[T]) ref() store.Ref {
	return store.Ref{Key: d.lease.Key(), ID: d.lease.ID(), Mode: store.Exclusive}
}

// changes returns the changes to save, or an error if the lease is over.
func (d *Document[T]) changes() (*change, bson.Raw, error) {
	if err := d.lease.Err(); err != nil {
		return nil, nil, fmt.Errorf("doclock: save %s: %w", d.lease.Key(), err)
	}
	return d.locks.codec.changes(d.id, d.has, d.Value)
}

// send runs a save under the caller's context. The end of the lease cancels it too.
func (d *Document[T]) send(ctx context.Context, c *change, e *ending) error {
	if ctx.Err() != nil {
		return server.NotApplied(contextError(ctx))
	}
	ctx, cancel := context.WithTimeout(d.lease.Context(ctx), 10*time.Second)
	defer cancel()
	return d.locks.store.save(ctx, d.ref(), c, e)
}

// finish ends the lease as e says, and saves the value unless e removes the document. If it cannot
// begin, it only releases the document: its callers do not call again, and nobody else would.
func (d *Document[T]) finish(ctx context.Context, op string, e *ending) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	value, err := d.prepare(ctx, op, e)
	if err != nil {
		return d.refused(ctx, err, e.otherwise)
	}
	s := d.locks.store
	if inTransaction(ctx) {
		err := d.send(ctx, nil, e)
		d.noteSaved(value, err, true)
		if err != nil {
			return d.failed(ctx, op, err)
		}
		d.ended = true
		s.releasedInTransaction(d.lease.ID(), func() { _ = d.lease.Release() })
		return nil
	}
	e.session.Store(mongo.SessionFromContext(ctx))
	if !s.end(d.lease.ID(), e) {
		if err := d.lease.Err(); err != nil { // it has ended since
			return fmt.Errorf("doclock: %s %s: %w", op, d.lease.Key(), err)
		}
		return fmt.Errorf("doclock: %s %s: %w", op, d.lease.Key(), mongolock.ErrReleased)
	}
	err = d.outcome(op, e, d.lease.Release()) // if the reply is lost, the engine repeats the release, with e, until one comes
	if err == nil {
		d.has = saved{value}
	}
	return err
}

// prepare adds what is to be saved to an ending, and returns the value.
func (d *Document[T]) prepare(ctx context.Context, op string, e *ending) (value bson.Raw, err error) {
	if !e.remove && !e.unsaved {
		e.changes, value, err = d.changes()
	}
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("doclock: %s %s: %w", op, d.lease.Key(), contextError(ctx))
	}
	return value, err
}

// refused releases the document after an error for which nothing was sent, as otherwise says if it
// is set. A document that a transaction has written cannot be released before the end of that.
func (d *Document[T]) refused(ctx context.Context, err error, otherwise *ending) error {
	if d.lease.Err() != nil || inTransaction(ctx) {
		return err
	}
	if otherwise != nil {
		d.locks.store.end(d.lease.ID(), otherwise)
	}
	return errors.Join(err, d.lease.Release())
}

// outcome returns the error of an attempt to end the lease as e says, whose release answered
// err.
func (d *Document[T]) outcome(op string, e *ending, err error) error {
	switch {
	case e.landed.Load():
		return nil
	case d.locks.store.ending(d.lease.ID()) != e && !e.doubt.Load(): // e was not carried out, and will not be
		return cmp.Or(err, fmt.Errorf("doclock: %s %s: %w", op, d.lease.Key(), mongolock.ErrReleased))
	case errors.Is(err, mongolock.ErrOutcomeUnknown):
		return err
	case err == nil:
		return fmt.Errorf("doclock: %s %s: %w", op, d.lease.Key(), mongolock.ErrOutcomeUnknown)
	}
	return fmt.Errorf("doclock: %s %s: %w: %w", op, d.lease.Key(), mongolock.ErrOutcomeUnknown, err) // the engine goes on with e
}

// failed explains the error of a save. In a transaction it returns the driver's error
// unchanged, because its labels steer Session.WithTransaction.
func (d *Document[T]) failed(ctx context.Context, op string, err error) error {
	what := fmt.Sprintf("doclock: %s %s", op, d.lease.Key())
	var broken *store.BrokenError
	isBroken := errors.As(err, &broken)
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
