package doclock

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
)

// A Claimed is a document that Claim, TryClaim or Work has locked for a worker. Value is its content,
// as that of a Document. Complete, Remove, Requeue or Release ends the claim.
type Claimed[T any] struct {
	Value T

	doc   *Document[T]
	again *ending // under Work: what ends the claim if another end is refused
}

func claimed[T any](d *Document[T]) *Claimed[T] { return &Claimed[T]{Value: d.Value, doc: d} }

// Lease returns the lease of the document, as Document.Lease does. A ticket of its Detach is for
// Locks.ResumeClaim.
func (c *Claimed[T]) Lease() *mongolock.Lease { return c.doc.lease }

// ID returns the document's _id as it is stored.
func (c *Claimed[T]) ID() bson.RawValue { return c.doc.id }

// Holder returns the acquisition that claimed the document, as Document.Holder does.
func (c *Claimed[T]) Holder() mongolock.Holder { return c.doc.holder }

// Attempts returns how often the document was claimed, this time included.
func (c *Claimed[T]) Attempts() int { return c.doc.attempts }

// Save writes Value and keeps the claim, as Document.Save does.
func (c *Claimed[T]) Save(ctx context.Context) error {
	c.doc.Value = c.Value
	return c.doc.Save(ctx)
}

// Release puts the document back at once, and saves nothing. If the work has failed, Requeue it
// instead: it would fail again, as fast as it can be claimed.
func (c *Claimed[T]) Release() error { return c.doc.Release() }

// Complete saves Value, releases the document and marks it as done, in one step. It is never
// claimed again: its lock stays behind with that mark. Errors, sessions and transactions of
// Complete, Remove and Requeue are as those of Document.SaveAndRelease.
func (c *Claimed[T]) Complete(ctx context.Context) error {
	return c.finish(ctx, "complete", &ending{done: true})
}

// Remove deletes the document together with its lock.
func (c *Claimed[T]) Remove(ctx context.Context) error {
	return c.finish(ctx, "remove", &ending{remove: true})
}

// Requeue saves Value and releases the document in one step. The document is not claimed again
// until the duration after is over by the server's clock: from 0 to a year.
func (c *Claimed[T]) Requeue(ctx context.Context, after time.Duration) error {
	if after < 0 || after > 365*24*time.Hour {
		return c.doc.refused(ctx, fmt.Errorf("doclock: Requeue(%v): must be from 0 to a year", after), c.again)
	}
	return c.finish(ctx, "requeue", &ending{requeue: true, after: after})
}

func (c *Claimed[T]) finish(ctx context.Context, op string, e *ending) error {
	c.doc.Value, e.otherwise = c.Value, c.again
	return c.doc.finish(ctx, op, e)
}
