package doclock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/store"
)

// Claim locks one of the documents that filter matches, the first by sort (which may be nil),
// and waits until there is one. No two workers have the same document at a time. Each claim
// counts as an attempt. If the worker dies, the document can be claimed again once its lease
// has run out. End the claim with Complete, Remove or Requeue; Release puts the document back
// at once.
//
// The workers of one process keep the order, as it was known up to a second ago. If several
// processes claim, each also takes later documents rather than compete for the first. Keep the
// filter the same from call to call: only claims with equal filters and sorts share a look
// ahead.
//
// A waiting Claim looks every 50 ms at first, then less often, down to once a second. A call of
// Announce wakes it. If the database is out of reach, Claim fails at first; once it waits, it
// rides out faults. A document that the server refuses to change, as its size or the collection's
// validator forbids it, is an error, and is then left alone for a minute.
func (l *Locks[T]) Claim(ctx context.Context, filter, sort any, opts ...mongolock.AcquireOption) (*Claimed[T], error) {
	p, err := l.pool(ctx, filter, sort, opts)
	if err != nil {
		return nil, err
	}
	p.waiters.enter()
	defer p.waiters.leave()
	var fault error // the last one that was ridden out
	for waited := false; ; waited = true {
		c, err := l.try(ctx, p, opts)
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, ErrNoWork):
			fault = nil
		case !waited || !passes(err):
			return nil, err
		case ctx.Err() == nil: // otherwise the caller's context cut the look off
			fault = err
		}
		if err := l.pools.sleep(ctx, p); err != nil {
			return nil, gaveUp(p, err, fault)
		}
	}
}

// passes reports whether a waiting claim rides out an error, as Acquire does: whether it is a
// fault of the database, and neither a verdict, nor final, nor about one document.
func passes(err error) bool {
	return !store.IsVerdict(err) && !errors.Is(err, ErrDecode) && !errors.As(err, new(*unclaimable)) &&
		!errors.Is(err, mongolock.ErrClosed) && !errors.Is(err, mongolock.ErrDisconnected)
}

// gaveUp returns the error of a claim whose wait is over. It does not match ErrNoWork, which
// belongs to TryClaim. It says why the wait ended, and what kept the claim waiting.
func gaveUp(p *pool, err, fault error) error {
	err = fmt.Errorf("doclock: claim: %w", err)
	if fault != nil {
		err = fmt.Errorf("%w; last fault: %w", err, fault)
	}
	if foreign := p.passedOver(); foreign != nil {
		err = fmt.Errorf("%w; passed over: %w", err, foreign)
	}
	return err
}

// TryClaim is Claim without waiting: it returns ErrNoWork if there is nothing to claim. The
// error also matches mongolock.ErrForeign if a document is passed over because foreign content
// stands in the lock's place.
func (l *Locks[T]) TryClaim(ctx context.Context, filter, sort any, opts ...mongolock.AcquireOption) (*Claimed[T], error) {
	p, err := l.pool(ctx, filter, sort, opts)
	if err != nil {
		return nil, err
	}
	return l.try(ctx, p, opts)
}

// pool checks the arguments of a claim together, and returns its pool.
func (l *Locks[T]) pool(ctx context.Context, filter, sort any, opts []mongolock.AcquireOption) (*pool, error) {
	errs := []error{l.check(opts)}
	f, err := marshal(filter)
	if err != nil {
		errs = append(errs, fmt.Errorf("doclock: claim: the filter: %w", err))
	}
	var s bson.Raw
	if sort != nil {
		if s, err = marshal(sort); err != nil {
			errs = append(errs, fmt.Errorf("doclock: claim: the sort: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("doclock: claim: %w", contextError(ctx))
	}
	return l.pools.pool(f, s)
}

// try is one attempt of a claim. It ends after some documents that others were quicker to claim: a
// document that a look shows and that no claim gets, for whatever reason, must not keep it for ever.
func (l *Locks[T]) try(ctx context.Context, p *pool, opts []mongolock.AcquireOption) (*Claimed[T], error) {
	missed := map[string]int{} // how often, by _id
	for misses := 0; misses < maxMiss; {
		id, some, err := p.draw(ctx)
		if err != nil {
			return nil, err
		}
		if !some {
			if foreign := p.lookForForeign(ctx); foreign != nil {
				return nil, fmt.Errorf("%w: %w", ErrNoWork, foreign)
			}
			return nil, ErrNoWork
		}
		c, err := l.claim(ctx, p, id, opts)
		p.done(id, errors.Is(err, errMissed))
		switch {
		case errors.Is(err, errMissed):
			misses++
			if missed[text(id)]++; missed[text(id)] == badAfter {
				p.spoil(id)
			}
		case !errors.Is(err, errSetAside):
			return c, err
		}
	}
	return nil, fmt.Errorf("%w: other claims were quicker %d times", ErrNoWork, maxMiss)
}

// claim locks the document that was drawn, if it can still be claimed.
func (l *Locks[T]) claim(ctx context.Context, p *pool, id bson.RawValue, opts []mongolock.AcquireOption) (*Claimed[T], error) {
	key, err := keyOfID(id)
	if err != nil {
		p.spoil(id)
		return nil, &unclaimable{err}
	}
	r := &request{one: true, filter: p.filter, over: p.overOn(id)}
	lease, err := l.client.TryAcquire(context.WithValue(ctx, requestKey{}, r), key, l.with(opts)...)
	if isUnchangeable(err) {
		p.spoil(id)
		return nil, &unclaimable{err}
	}
	if err != nil {
		return nil, err
	}
	if n := readMarks(r.document(lease.ID()), string(l.store.lock)).attempts; l.maxAttempts > 0 && n > l.maxAttempts {
		return nil, l.setAside(lease, n-1)
	}
	d, err := l.document(lease, r)
	if err != nil {
		p.spoil(id) // otherwise the next claim would draw it again
		return nil, err
	}
	return claimed(d), nil
}

// An unclaimable says that no claim can ever get a document as it is: its _id is too long for a key, or the
// server refuses every change of it.
type unclaimable struct{ error }

func (u *unclaimable) Unwrap() error { return u.error }

// isUnchangeable reports whether the server refuses a claim because of what is in the document: attempts that
// are no number or too great a one, fields that the collection's validator does not allow, its size.
func isUnchangeable(err error) bool {
	const badValue, typeMismatch, validationFailure = 2, 14, 121
	return errors.Is(err, store.ErrTooLarge) || hasCode(err, badValue, typeMismatch, validationFailure)
}

// hasCode reports whether err is a server's error with one of these codes.
func hasCode(err error, codes ...int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(codes, server.HasErrorCode)
}

// EnsureClaimIndex creates the index that makes claims by filter and sort fast, unless it
// exists. It is on the filter's fields, the lock's mark of completion, the sort's fields
// and the lock's expiry. It needs the right to create an index.
func (l *Locks[T]) EnsureClaimIndex(ctx context.Context, filter, sort any) error {
	keys, err := l.store.claimIndex(filter, sort)
	if err != nil {
		return err
	}
	coll := l.store.base.Soft
	_, err = coll.Indexes().CreateOne(command.Bare(ctx), mongo.IndexModel{
		Keys: keys, Options: options.Index().SetName(indexName(keys)),
	})
	if err != nil {
		return fmt.Errorf("doclock: ensure index: %w", err)
	}
	return nil
}
