package once

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/inside/above"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

const (
	pkg = "once" // for observers

	callBound = 10 * time.Second // of a look

	// The pauses between the looks of a waiter, and between attempts.
	pauseLeast = 200 * time.Millisecond
	pauseMost  = time.Second
)

// A Run is one run of the function.
type Run struct {
	lease  *mongolock.Lease
	number int
}

// Token returns the run's fencing token, greater than those of all earlier runs of the name.
func (r Run) Token() int64 { return r.lease.Token() }

// Number returns 1 in the very first run. In a later run, an earlier one may have done a part
// of the work.
func (r Run) Number() int { return r.number }

// Lease returns the lease that the run rests on.
func (r Run) Lease() *mongolock.Lease { return r.lease }

// A Func is the work that is to be done once.
type Func func(ctx context.Context, run Run) error

// Do runs fn, unless the record of name in coll says that it is done. If another process runs
// it, Do waits and returns how that ended: nil if it is done, a FailedError if it failed. If
// that process dies or is stopped, fn runs here.
//
// If fn runs here, Do returns its error, and the run counts as failed. It counts as stopped if
// the error is ctx's, and ctx has ended. If the lease is lost while fn runs, its context ends,
// nothing is recorded, and the error matches mongolock.ErrLost too.
//
// ctx bounds the wait for another process, as Acquire's does. Under the context of a run of the same name Do would
// wait for itself: it returns an error that matches mongolock.ErrHeld. The collection's own write
// concern, read concern and read preference do not matter, and a transaction in ctx is left
// alone. Keep nothing else in that collection.
func Do(ctx context.Context, coll *mongo.Collection, name string, fn Func, opts ...Option) error {
	return do(ctx, "Do", true, coll, name, fn, opts)
}

// TryDo is Do without waiting: if another process runs fn, it returns false and no error. It returns
// true if the work is done, here or elsewhere.
func TryDo(ctx context.Context, coll *mongo.Collection, name string, fn Func, opts ...Option) (done bool, err error) {
	err = do(ctx, "TryDo", false, coll, name, fn, opts)
	if errors.Is(err, errElsewhere) {
		return false, nil
	}
	return err == nil, err
}

// errElsewhere answers a call that does not wait, if another process runs fn.
var errElsewhere = errors.New("once: another process runs it")

func do(ctx context.Context, caller string, wait bool, coll *mongo.Collection, name string, fn Func, opts []Option) error {
	conf, err := newConfig(caller, coll, name, opts)
	if fn == nil {
		err = errors.Join(err, fmt.Errorf("once: %s: fn is nil", caller))
	}
	if err == nil && wait && within(ctx, coll, name) {
		err = fmt.Errorf("once: Do: %q: this is called within its own run, and would wait for itself: %w", name, mongolock.ErrHeld)
	}
	l, err := open(coll, name, conf, err)
	if err != nil {
		return err
	}
	defer l.locks.Close() //nolint:errcheck // what it holds is given back, or runs out
	seen, err := l.look(ctx)
	if err != nil {
		return err
	}
	failures := 0
	if seen != nil {
		failures = seen.failures()
		if over, err := seen.settled(conf.sum, failures); over {
			return err
		}
	}
	acquire := l.acquire
	if !wait {
		acquire = l.tryAcquire
	}
	doc, err := acquire(ctx, failures)
	var known *known
	switch {
	case errors.As(err, &known):
		return known.answer
	case err != nil:
		return err
	}
	defer doc.Release() //nolint:errcheck // as Close
	if over, err := doc.Value.settled(conf.sum, failures); over {
		return err
	}
	return l.run(ctx, doc, fn)
}

// A current run is in the context of its function.
type current struct {
	collection
	name  string
	lease *mongolock.Lease
	outer *current // the run within which it was begun; nil: none
}

type currentKey struct{}

// A collection tells collections apart.
type collection struct {
	client         *mongo.Client
	database, name string
}

func of(coll *mongo.Collection) collection {
	return collection{coll.Database().Client(), coll.Database().Name(), coll.Name()}
}

// within reports whether a run of that name is the caller's.
func within(ctx context.Context, coll *mongo.Collection, name string) bool {
	run, _ := ctx.Value(currentKey{}).(*current)
	for ; run != nil; run = run.outer {
		if run.collection == of(coll) && run.name == name && run.lease.Err() == nil {
			return true
		}
	}
	return false
}

// A ledger is the collection, as one call uses it.
type ledger struct {
	config
	name     string
	coll     collection
	base     *server.Collection
	locks    *doclock.Locks[document]
	observer mongolock.Observer
}

// open makes a ledger, unless an argument was wrong. It sends nothing.
func open(coll *mongo.Collection, name string, conf config, wrong error) (*ledger, error) {
	if coll == nil {
		return nil, wrong
	}
	locks, err := doclock.New[document](coll, append(conf.locks, doclock.With(conf.lease...))...)
	if err := errors.Join(wrong, err); err != nil {
		return nil, err
	}
	observer, _ := inside.Observer(above.Engine(locks)).(mongolock.Observer)
	return &ledger{config: conf, name: name, coll: of(coll), base: server.New(coll, nil), locks: locks, observer: observer}, nil
}

// look reads the document as a majority has it. It returns nil if there is no document.
func (l *ledger) look(ctx context.Context) (*document, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("once: %q: %w", l.name, context.Cause(ctx))
	}
	bounded, cancel := context.WithTimeout(server.Bare(ctx), callBound)
	defer cancel()
	raw, err := l.base.Committed.FindOne(bounded, doclock.ID(l.name)).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("once: %q: %w", l.name, err)
	}
	return read(raw)
}

// A known error ends the wait for the lock, because the call's result is known without it.
type known struct{ answer error }

func (*known) Error() string { return "once: the outcome is known" }

// acquire locks the document, and makes it if it does not exist. While another process has it,
// acquire also looks: so n waiters need not each wait until the others have had the lock.
func (l *ledger) acquire(ctx context.Context, failures int) (*doclock.Document[document], error) {
	ctx, settle := context.WithCancelCause(context.WithValue(ctx, inside.ShownKey{}, inside.Shown{Package: pkg, Key: l.name}))
	var watching sync.WaitGroup
	watching.Go(func() {
		pauses := backoff.New(pauseLeast, pauseMost)
		for backoff.Sleep(ctx, pauses.Next()) {
			d, err := l.look(ctx)
			if err != nil || d == nil {
				continue // the claim meets the same fault, and rides it out or returns it
			}
			if over, answer := d.settled(l.sum, failures); over {
				settle(&known{answer})
				return
			}
		}
	})
	filter, initial := l.initial()
	doc, err := l.locks.AcquireOrCreate(ctx, filter, initial)
	why := context.Cause(ctx)
	settle(nil)
	watching.Wait()
	var settled *known
	switch {
	case err == nil:
		return doc, nil
	case errors.As(why, &settled):
		return nil, settled
	}
	return nil, l.explained(ctx, err)
}

// tryAcquire is acquire without waiting.
func (l *ledger) tryAcquire(ctx context.Context, _ int) (*doclock.Document[document], error) {
	filter, initial := l.initial()
	ctx = context.WithValue(ctx, inside.ShownKey{}, inside.Shown{Package: pkg, Key: l.name})
	doc, err := l.locks.TryAcquireOrCreate(ctx, filter, initial)
	if errors.Is(err, mongolock.ErrHeld) {
		return nil, errElsewhere
	}
	return doc, l.explained(ctx, err)
}

// initial returns the filter that names the record, and the record of work that was never begun.
func (l *ledger) initial() (bson.D, document) {
	return append(doclock.ID(l.name), bson.E{Key: mark, Value: shape}), document{Name: l.name, Mark: shape, Past: []Entry{}}
}

// explained replaces the error of a claim if another kind of document has the name.
func (l *ledger) explained(ctx context.Context, err error) error {
	if mongo.IsDuplicateKeyError(err) {
		if _, foreign := l.look(context.WithoutCancel(ctx)); foreign != nil {
			return foreign
		}
	}
	return err
}

// run runs fn under the lock, and records its outcome.
func (l *ledger) run(ctx context.Context, doc *doclock.Document[document], fn Func) (err error) {
	lease, holder := doc.Lease(), doc.Holder()
	doc.Value.Runs++
	doc.Value.add(Entry{
		Number: doc.Value.Runs, Owner: holder.Owner, Note: holder.Note, Token: lease.Token(), Sum: l.sum,
		Began: holder.Since.UTC(), Outcome: Running,
	})
	began := time.Now()
	if err := l.save(ctx, doc); err != nil {
		return err
	}
	shown, tell := l.observer.Begin(ctx, mongolock.Operation{Op: mongolock.OpRun, Package: pkg, Key: l.name, Mode: store.Exclusive})
	why := errReturnedNot
	defer func() {
		seen := why
		if lost := lease.Err(); errors.Is(lost, mongolock.ErrLost) {
			seen = lost
		}
		tell(mongolock.Outcome{Err: seen, Token: lease.Token(), Count: 1})
		outcome := Succeeded
		switch {
		case why == nil:
		case errors.Is(why, errReturnedNot):
			outcome = Panicked
		case ctx.Err() != nil && (errors.Is(why, ctx.Err()) || errors.Is(why, context.Cause(ctx))):
			outcome = Stopped
		default:
			outcome = Failed
		}
		doc.Value.end(outcome, holder.Since.UTC().Add(time.Since(began)), why)
		unrecorded := l.end(context.WithoutCancel(ctx), doc)
		switch {
		case unrecorded == nil:
			err = why
		case why == nil:
			err = fmt.Errorf("%w: %q: %w", ErrUnrecorded, l.name, unrecorded)
		default:
			err = errors.Join(why, unrecorded)
		}
	}()
	outer, _ := ctx.Value(currentKey{}).(*current)
	shown = context.WithValue(shown, currentKey{}, &current{l.coll, l.name, lease, outer})
	why = fn(lease.Context(shown), Run{lease, doc.Value.Runs})
	return why
}

// save saves the record, and repeats that for as long as the lease lasts. Of a save that is
// sent twice only the last one counts.
func (l *ledger) save(ctx context.Context, doc *doclock.Document[document]) error {
	unknown := false // an attempt may have been applied
	for pauses, first := backoff.New(pauseLeast, pauseMost), true; ; first = false {
		err := doc.Save(server.Bare(ctx))
		if err == nil {
			return nil
		}
		unknown = unknown || errors.Is(err, mongolock.ErrOutcomeUnknown)
		passes := errors.Is(err, mongolock.ErrOutcomeUnknown) || errors.Is(err, store.ErrNotApplied)
		over := !passes || errors.Is(err, mongolock.ErrLost) || errors.Is(err, mongolock.ErrDisconnected) || ctx.Err() != nil
		if first && !over {
			l.logger.Warn("once: the record is not saved yet, trying again", "name", l.name, "error", err)
		}
		if over || !backoff.Sleep(doc.Lease().Context(ctx), pauses.Next()) {
			err = errors.Join(err, doc.Lease().Err())
			if unknown && !errors.Is(err, mongolock.ErrOutcomeUnknown) {
				err = errors.Join(err, mongolock.ErrOutcomeUnknown)
			}
			return err
		}
	}
}

// end records how the run ended. If the lease ended before that was certain, the record tells.
func (l *ledger) end(ctx context.Context, doc *doclock.Document[document]) error {
	err := l.save(ctx, doc)
	if errors.Is(err, mongolock.ErrOutcomeUnknown) {
		outcome := doc.Value.Past[len(doc.Value.Past)-1].Outcome
		if d, failed := l.look(ctx); failed == nil && d != nil && d.outcomeOf(doc.Lease().Token()) == outcome {
			return nil
		}
	}
	return err
}
