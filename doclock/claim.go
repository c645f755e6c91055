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
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/mongo/server"
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
// rides out faults. When MaxWait is over the error matches ErrNoWork, if the last look found none.
// A document that does not decode, or that the server refuses to change, as its size or the collection's
// validator forbids it, is an error, and is then left alone: for a minute, and each time for twice as long.
func (l *Locks[T]) Claim(ctx context.Context, filter, sort any, opts ...mongolock.AcquireOption) (*Claimed[T], error) {
	terms, err := inside.TermsOf(l.client, "document", l.with(opts))
	if err != nil || terms.MaxWait <= 0 {
		return l.claimNext(ctx, filter, sort, opts)
	}
	within, cancel := context.WithTimeoutCause(ctx, terms.MaxWait, errWaited)
	defer cancel()
	return l.claimNext(within, filter, sort, opts)
}

var errWaited = errors.New("MaxWait exceeded")

// claimNext is Claim without a MaxWait.
func (l *Locks[T]) claimNext(ctx context.Context, filter, sort any, opts []mongolock.AcquireOption) (*Claimed[T], error) {
	p, err := l.pool(ctx, filter, sort, opts)
	if err != nil {
		return nil, err
	}
	p.waiters.enter()
	defer p.waiters.leave()
	var last error // ErrNoWork, or the fault that was ridden out
	for waited := false; ; waited = true {
		c, err := l.try(ctx, p, opts)
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, ErrNoWork):
			last = ErrNoWork
		case ctx.Err() != nil && passes(err): // the look was cut off
		case !waited || !passes(err):
			return nil, err
		default:
			last = err
		}
		if err := l.pools.sleep(ctx, p); err != nil {
			return nil, gaveUp(ctx, p, err, last)
		}
	}
}

// passes reports whether a waiting claim rides out an error, as Acquire does: whether it is a
// fault of the database, and neither a verdict, nor final, nor about one document.
func passes(err error) bool {
	return !store.IsVerdict(err) && !errors.Is(err, ErrDecode) && !errors.As(err, new(*unclaimable)) &&
		!errors.Is(err, mongolock.ErrClosed) && !errors.Is(err, mongolock.ErrDisconnected)
}

// gaveUp returns the error of a claim whose wait is over, with what kept the claim waiting. It matches
// ErrNoWork, which otherwise belongs to TryClaim, if MaxWait ended the wait, and then no context's error.
func gaveUp(ctx context.Context, p *pool, err, last error) error {
	waited := context.Cause(ctx) == errWaited //nolint:errorlint // it is the cause itself
	if waited {
		err = errWaited
	}
	err = fmt.Errorf("doclock: claim: %w", err)
	switch {
	case last == nil:
	case last != ErrNoWork: //nolint:errorlint // as above
		err = fmt.Errorf("%w; last fault: %w", err, last)
	case waited:
		err = fmt.Errorf("%w: %w", err, ErrNoWork)
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
			if news, foreign := p.lookForForeign(ctx); foreign != nil {
				if news {
					l.logger.Warn("doclock: a document is passed over by every claim", "collection", l.store.base.W1.Name(), "error", foreign)
				}
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

// EnsureClaimIndex creates the indexes that make claims by filter and sort fast, unless they exist. One is on the
// filter's fields, the lock's mark of completion, the sort's fields and the lock's times. If there is a sort, the other
// has no sort's fields: by it an idle worker skips what is put off. It needs the right to create an index.
func (l *Locks[T]) EnsureClaimIndex(ctx context.Context, filter, sort any) error {
	var models []mongo.IndexModel
	for _, by := range []any{sort, nil} {
		keys, err := l.store.claimIndex(filter, by)
		if err != nil {
			return err
		}
		models = append(models, mongo.IndexModel{Keys: keys, Options: options.Index().SetName(indexName(keys))})
		if sort == nil {
			break
		}
	}
	if _, err := l.store.base.W1.Indexes().CreateMany(server.Bare(ctx), models); err != nil {
		return fmt.Errorf("doclock: ensure index: %w", err)
	}
	return nil
}
