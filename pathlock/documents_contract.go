package pathlock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
)

// Documents keeps one document for each tree, and the clock that judges its locks. Memory and
// Dir do. OnDocuments makes a Storage of yours; package pathlocktest proves it.
//
//  1. One step. change sees the tree as it is when its edit is applied: if the tree is
//     written in between, change is called again. The edits of a tree have an order, and
//     each sees those before it.
//  2. Own clock. Clock is an interval in which the storage's clock lies while look or
//     change runs. It is the same clock for all processes, and no other judges a lock.
//     If a lock runs out within the interval, and a narrower interval can be had, the
//     storage gets that first (Document.RunsOutBetween).
//  3. Durable. An edit that was acknowledged survives a crash. (In memory: as long as the
//     process lives.)
//  4. Verdict or fault. An error of change is returned as it is, and nothing is written.
//     ErrTooLarge and ErrForeign are certain. After a fault joined with
//     store.ErrNotApplied nothing was written, and nothing will be. After any other fault
//     the edit may have been applied, or may be applied later, but no longer once a later
//     edit of the same tree was acknowledged.
//  5. Strangers. A record that another program wrote, or a newer version of this package,
//     answers ErrForeign and stays as it is.
//  6. Data. Strings and bytes are returned unchanged. Documents belong to the storage:
//     neither side keeps or changes what the other owns.
//  7. Context. A call returns soon after its context ends, and starts nothing that
//     outlives it.
//
// Documents that are also a store.Feed carry the notices for waiters and watchers.
type Documents interface {
	// View calls look with a tree. look must not change or keep the document. It may be
	// called again.
	View(ctx context.Context, tree string, look func(doc *Document, now Clock)) error

	// Update calls change with a tree, and applies the edit that it returns, unless that
	// is empty. change must not change or keep the document itself. at is the time of the
	// write by the storage's clock; without a write, any time of the call.
	Update(ctx context.Context, tree string, change func(doc *Document, now Clock) (Edit, error)) (at time.Time, err error)
}

// Prompt marks Documents whose calls never block. They run on the caller's goroutine.
// Otherwise each write has its own goroutine, so that the caller can leave when its
// context ends.
type Prompt interface {
	Documents
	// AnswersAtOnce does nothing: having the method is the mark.
	AnswersAtOnce()
}

// A Clock is the reading of a storage's clock at one moment: a time from Earliest to Latest.
type Clock struct{ Earliest, Latest time.Time }

// end returns when a lock that begins now runs out. All storages keep milliseconds.
func (c Clock) end(timeout time.Duration) time.Time {
	if timeout == Infinite {
		return time.Time{}
	}
	return mongoclock.Ceil(c.Latest.Add(timeout))
}

func (c Clock) exact() bool { return c.Earliest.Equal(c.Latest) }
