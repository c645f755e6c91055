package doclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

const (
	requeueLeast = time.Second      // after the first failure of a document's work, doubled with each attempt
	requeueMost  = 10 * time.Minute // … and at most
	againLeast   = 100 * time.Millisecond
	againMost    = 10 * time.Second // the pauses after a claim that failed
)

// Work has n workers claim the documents that filter matches, the first by sort, and run fn on each.
// It returns nil when ctx has ended and the workers are done, or the error that makes further claims
// useless, such as that of a wrong filter.
//
// The context of fn ends with the document's lease. If fn returns nil and has not ended the claim
// itself, the document is completed: Value is saved. If fn returns an error, or Value cannot be saved,
// the document is put back as it was, and not claimed again for a second, which doubles with each
// attempt up to ten minutes; the logger is told. With MaxAttempts it is set aside in the end. If fn
// returns an error after ctx has ended, the document is put back at once, for another process, and
// that does not count as an attempt. MaxWait does not apply.
func (l *Locks[T]) Work(ctx context.Context, n int, filter, sort any, fn func(ctx context.Context, msg *Claimed[T]) error, opts ...mongolock.AcquireOption) error {
	switch {
	case n < 1:
		return fmt.Errorf("doclock: Work: n is %d: must be positive", n)
	case fn == nil:
		return errors.New("doclock: Work: fn is nil")
	}
	if _, err := l.pool(context.WithoutCancel(ctx), filter, sort, opts); err != nil {
		return err
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			if err := l.work(working, filter, sort, fn, opts); err != nil {
				stop(err) // the others end too
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil || working.Err() == nil {
		return nil
	}
	return context.Cause(working)
}

// work is one worker. It returns an error after which no claim can succeed.
func (l *Locks[T]) work(ctx context.Context, filter, sort any, fn func(context.Context, *Claimed[T]) error, opts []mongolock.AcquireOption) error {
	pauses := backoff.New(againLeast, againMost)
	for ctx.Err() == nil {
		msg, err := l.claimNext(ctx, filter, sort, opts)
		switch {
		case err == nil:
			pauses = backoff.New(againLeast, againMost)
			l.handle(ctx, msg, fn)
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, mongolock.ErrClosed), errors.Is(err, mongolock.ErrDisconnected), isWrong(err):
			return err
		}
		l.logger.Warn("doclock: a worker cannot claim, and tries again", "collection", l.store.base.W1.Name(), "error", err)
		if errors.Is(err, ErrDecode) || errors.As(err, new(*unclaimable)) {
			continue // that document is left alone for a while, and the next may be good
		}
		select {
		case <-time.After(pauses.Next()):
		case <-ctx.Done():
		}
	}
	return nil
}

// isWrong reports whether the server refuses the filter or the sort, whatever the documents are.
func isWrong(err error) bool {
	const badValue, failedToParse = 2, 9
	return !errors.As(err, new(*unclaimable)) && hasCode(err, badValue, failedToParse)
}

// handle runs fn on a document, and ends the claim.
func (l *Locks[T]) handle(ctx context.Context, msg *Claimed[T], fn func(context.Context, *Claimed[T]) error) {
	defer func() { _ = msg.Release() }() // does nothing after another end, also if fn panics
	msg.again = &ending{requeue: true, unsaved: true, after: backoff.Jitter(min(requeueLeast<<min(max(msg.Attempts()-1, 0), 20), requeueMost))}
	failed := fn(msg.Lease().Context(ctx), msg)
	tell := func(err error) {
		l.logger.Warn("doclock: the work on a document failed", "key", msg.Lease().Key(), "attempts", msg.Attempts(),
			"collection", l.store.base.W1.Name(), "error", err)
	}
	again := msg.again
	if ctx.Err() != nil {
		again = &ending{requeue: true, unsaved: true, uncounted: true}
	}
	if msg.doc.ended || msg.Lease().Err() != nil && !errors.Is(msg.Lease().Err(), mongolock.ErrLost) { // fn has ended the claim
		if failed != nil && msg.doc.ended { // in a transaction, which may have been aborted
			l.store.end(msg.Lease().ID(), again)
		}
		if failed != nil && ctx.Err() == nil {
			tell(failed)
		}
		return
	}
	bare := context.WithoutCancel(ctx) // the document must come back although ctx has ended
	var unended error
	if failed == nil {
		unended = msg.Complete(bare)
	} else {
		unended = msg.doc.finish(bare, "requeue", again)
	}
	if err := errors.Join(failed, unended); err != nil && (ctx.Err() == nil || unended != nil && !store.IsCertain(unended)) {
		tell(err)
	}
}
