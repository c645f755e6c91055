package pathlock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// A keeper keeps one document for each tree, and has the clock that judges its locks: in memory or
// in files.
//
//  1. One step. change has the tree to itself. The steps of a tree have an order, and each sees
//     those before it.
//  2. Own clock. now is an interval in which the storage's clock lies while look or
//     change runs. It is the same clock for all processes, and no other judges a lock.
//  3. Durable. A step that was acknowledged survives a crash. (In memory: as long as the process
//     lives.)
//  4. Fault. ErrTooLarge and ErrForeign are certain: nothing was written. So are faults joined with
//     store.ErrNotApplied. After any other the step may have been applied, but is not applied later.
//  5. Foreign. A record that another program wrote, or a newer version of this package,
//     answers ErrForeign and stays as it is.
//  6. Data. Strings and bytes are returned unchanged. Documents belong to the storage:
//     neither side keeps or changes what the other owns.
//  7. Context. A call returns soon after its context ends, and starts nothing that
//     outlives it.
//
// A keeper that is also a store.Feed carries the notices for waiters.
type keeper interface {
	// View calls look with a tree. look must not change or keep the document.
	View(ctx context.Context, tree string, look func(doc *document, now interval)) error

	// Update calls change with a tree, and keeps what change makes of it. change must not keep the
	// document. at is the time of the step by the storage's clock.
	Update(ctx context.Context, tree string, change func(doc *document, now interval)) (at time.Time, err error)
}

// An interval is the reading of a storage's clock at one moment: a time from Earliest to Latest.
type interval struct{ Earliest, Latest time.Time }

// end returns when a lock that begins now runs out. All storages keep milliseconds.
func (c interval) end(timeout time.Duration) time.Time {
	if timeout == Infinite {
		return time.Time{}
	}
	return server.Ceil(c.Latest.Add(timeout))
}

func (c interval) exact() bool { return c.Earliest.Equal(c.Latest) }
