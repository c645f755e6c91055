package pathlock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/mongoclock"
)

// A Storage keeps one document for each tree, and the clock that judges its locks.
// OnMongo, InMemory and InDir are storages; package pathlocktest proves one.
//
//  1. One step. What change sees is the tree as it is when its edit is applied: if
//     anybody wrote in between, change is asked again. Edits of one tree are in an
//     order, and each sees those before it.
//  2. Own clock. Clock tells an interval in which the storage's clock lies while look
//     or change runs, for all processes the same clock, and no lock's time is
//     judged by another. Where a lock runs out within the interval, and a narrower one
//     can be had, it is got first (Document.RunsOutBetween).
//  3. Durable. An edit that was acknowledged is there after a crash. (In memory: as
//     long as the process lives.)
//  4. Verdict or fault. An error of change is returned as it is, and nothing is written.
//     ErrTooLarge and ErrForeign are certain. A fault joined with store.ErrNotApplied
//     surely left no trace; of any other the edit may have been applied, or may be yet,
//     but not once an edit of the same tree that came later was acknowledged.
//  5. Strangers. What is not of this package, or of a newer version, answers
//     ErrForeign and stays as it is.
//  6. Data. Strings and bytes come back as they were. Documents belong to the storage:
//     neither side keeps or changes what the other owns.
//  7. Context. A call returns soon after its context ends and starts nothing that
//     outlives it.
//
// A storage that is also a store.Feed carries the notices of waiters and watchers.
type Storage interface {
	// View shows a tree. look must not change the document or keep it, and may be
	// called again.
	View(ctx context.Context, tree string, look func(doc *Document, now Clock)) error

	// Update shows a tree, and writes the edit that change makes of it, unless that is
	// empty. change must not change the document itself or keep it. at is what the
	// storage's clock showed when it wrote; without a write, any time of the call.
	Update(ctx context.Context, tree string, change func(doc *Document, now Clock) (Edit, error)) (at time.Time, err error)
}

// Prompt marks a storage whose calls never block. They then run on the caller's
// goroutine; otherwise each write has its own, so that a caller is let go when his
// context ends.
type Prompt interface {
	Storage
	AnswersAtOnce()
}

// A Clock is a storage's clock at one moment. It shows no less than Earliest and no
// more than Latest.
type Clock struct{ Earliest, Latest time.Time }

// end is when a lock runs out that begins now. All storages keep milliseconds.
func (c Clock) end(timeout time.Duration) time.Time {
	if timeout == Infinite {
		return time.Time{}
	}
	return mongoclock.Ceil(c.Latest.Add(timeout))
}

func (c Clock) exact() bool { return c.Earliest.Equal(c.Latest) }
