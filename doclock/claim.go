package doclock

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongobase"
)

// Claim locks one of the documents that filter matches, the first by sort (which
// may be nil), and waits until there is one. Each goes to one worker at a time. It
// counts as an attempt; when the worker dies the document comes back after its
// lease. End it with Complete, Remove or Requeue; Release puts it back at once.
//
// The order holds among the workers of one process, as far as it was known up to a
// second ago. Where several processes claim, each also takes later ones rather than
// fight for the first. Keep the filter the same from call to call: what is known of
// what it matches is shared by those who ask the same.
//
// It waits by looking every 50 ms at first, then less and less often, up to once a
// second; and where producers call Announce it is woken.
func (l *Locks[T]) Claim(ctx context.Context, filter, sort any, opts ...mongolock.AcquireOption) (*Claimed[T], error) {
	p, err := l.pool(ctx, filter, sort)
	if err != nil {
		return nil, err
	}
	p.line.enter()
	defer p.line.leave()
	for {
		claimed, err := l.try(ctx, p, opts)
		if !errors.Is(err, ErrNoWork) {
			return claimed, err
		}
		if err := l.shapes.sleep(ctx, p); err != nil {
			return nil, err
		}
	}
}

// TryClaim is Claim without waiting: ErrNoWork if there is none.
func (l *Locks[T]) TryClaim(ctx context.Context, filter, sort any, opts ...mongolock.AcquireOption) (*Claimed[T], error) {
	p, err := l.pool(ctx, filter, sort)
	if err != nil {
		return nil, err
	}
	return l.try(ctx, p, opts)
}

func (l *Locks[T]) pool(ctx context.Context, filter, sort any) (*pool, error) {
	f, err := marshal(filter)
	if err != nil {
		return nil, fmt.Errorf("doclock: claim: the filter: %w", err)
	}
	var s bson.Raw
	if sort != nil {
		if s, err = marshal(sort); err != nil {
			return nil, fmt.Errorf("doclock: claim: the sort: %w", err)
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("doclock: claim: %w", context.Cause(ctx))
	}
	return l.shapes.pool(f, s)
}

func (l *Locks[T]) try(ctx context.Context, p *pool, opts []mongolock.AcquireOption) (*Claimed[T], error) {
	for {
		id, some, err := p.draw(ctx)
		if err != nil {
			return nil, err
		}
		if !some {
			if err := p.strangers(ctx); err != nil {
				return nil, err
			}
			return nil, ErrNoWork
		}
		claimed, err := l.claim(ctx, p, id, opts)
		missed := errors.Is(err, errMissed)
		p.done(id, missed)
		if !missed {
			return claimed, err
		}
	}
}

// claim locks the document that was drawn, if it is still there for the taking.
func (l *Locks[T]) claim(ctx context.Context, p *pool, id bson.RawValue, opts []mongolock.AcquireOption) (*Claimed[T], error) {
	key, err := keyOfID(id)
	if err != nil {
		p.spoil(id)
		return nil, err
	}
	r := &request{one: true, filter: p.filter}
	lease, err := l.client.TryAcquire(context.WithValue(ctx, requestKey{}, r), key, opts...)
	if err != nil {
		return nil, err
	}
	d, err := l.document(lease, r)
	if err != nil {
		p.spoil(id) // or the next claim would meet it again
		return nil, err
	}
	return &Claimed[T]{d}, nil
}

// EnsureClaimIndex makes the index that claims by filter and sort are fast with,
// unless it is there: on the filter's fields, the mark of what is done, the sort's
// fields and the lock's expiry. It takes the rights to create an index.
func (l *Locks[T]) EnsureClaimIndex(ctx context.Context, filter, sort any) error {
	keys, err := l.store.claimIndex(filter, sort)
	if err != nil {
		return err
	}
	coll := l.store.base.Soft
	_, err = coll.Indexes().CreateOne(mongobase.Bare(ctx), mongo.IndexModel{
		Keys: keys, Options: options.Index().SetName(indexName(keys)),
	})
	if err != nil {
		return fmt.Errorf("doclock: ensure index: %w", err)
	}
	return nil
}
