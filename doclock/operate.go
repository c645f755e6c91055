package doclock

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// Inspect shows who holds the document that filter names. A free document has no live holders
// and is no error. If there is no such document, the error is ErrNotFound.
func (l *Locks[T]) Inspect(ctx context.Context, filter any) (mongolock.Status, error) {
	key, err := l.find(ctx, filter)
	if err != nil {
		return mongolock.Status{}, err
	}
	return l.client.Inspect(ctx, key)
}

// List yields the documents that have a holder, with that holder. A holder that ran out is
// among them until the document is locked again (Status.Live tells). The key of a status is the
// JSON of the document's _id. List reads the locks of the whole collection, and is for people.
// An error ends it.
func (l *Locks[T]) List(ctx context.Context) iter.Seq2[mongolock.Status, error] {
	return l.client.List(ctx, "")
}

// Break takes the document that filter names from its holder, on an operator's order: see
// mongolock's Client.Break. It returns the holder that it marked. Changes that the holder has
// not saved by then are lost.
func (l *Locks[T]) Break(ctx context.Context, filter any, reason string, grace time.Duration) ([]mongolock.Holder, error) {
	key, err := l.find(ctx, filter)
	if err != nil {
		return nil, err
	}
	return l.client.Break(ctx, key, reason, grace)
}

// find returns the key of the one document that matches a filter.
func (l *Locks[T]) find(ctx context.Context, filter any) (string, error) {
	_, fields, err := keyOf(filter)
	if err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("doclock: %w", contextError(ctx))
	}
	ctx, cancel := context.WithTimeout(server.Bare(ctx), 10*time.Second)
	defer cancel()
	key, _, err := only(ctx, l.store.base, fields)
	return key, err
}

// Resume takes over a document whose lease was ended by Lease().Detach, in any process. The new
// lease has the same token; the document has the value that it has now. See mongolock's
// Client.Resume.
func (l *Locks[T]) Resume(ctx context.Context, ticket string, opts ...mongolock.Option) (*Document[T], error) {
	r := new(request)
	lease, err := l.client.Resume(context.WithValue(ctx, requestKey{}, r), ticket, opts...)
	if err != nil {
		return nil, err
	}
	return l.document(lease, r)
}

// ResumeClaim is Resume for a document that was claimed. It counts as the same attempt.
func (l *Locks[T]) ResumeClaim(ctx context.Context, ticket string, opts ...mongolock.Option) (*Claimed[T], error) {
	d, err := l.Resume(ctx, ticket, opts...)
	if err != nil {
		return nil, err
	}
	return claimed(d), nil
}
