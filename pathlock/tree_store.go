package pathlock

import (
	"context"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A Storage keeps trees. InMemory, InDir and OnMongo make one.
type Storage interface {
	open(name string, logger *slog.Logger) treeStore
}

// A treeStore runs the requests of one tree on its storage. Each call is one attempt,
// bounded by its context. It does not know the caller's context.
type treeStore interface {
	// feed returns the feed that carries notices between processes, or nil.
	feed() store.Feed

	// prompt reports whether calls never block: then they run on the caller's goroutine.
	prompt() bool

	// awaited reports whether callers may wait in other processes.
	awaited(ctx context.Context) bool

	// lock adds l, for r, if nothing conflicts. If it is refused and the caller waits, so that w
	// is not nil, it leaves a word that says so, and a reservation if w needs one. The lock may be
	// added under another token.
	lock(ctx context.Context, r Request, l Lock, w *waiter) outcome

	// unreserve removes a waiter's reservation.
	unreserve(ctx context.Context, id string) outcome

	// refresh restarts the time of a lock; a timeout of 0 stands for the lock's own, and so does a
	// shorter one with least set. It begins nothing once the caller has left, because the caller may
	// have asked again: between a look and the write that rests on it, it calls left.
	refresh(ctx context.Context, token string, timeout time.Duration, least bool, left func() bool) outcome

	// release removes a lock.
	release(ctx context.Context, token string) outcome

	// takeBack removes a lock whose outcome is unknown, or that will not be used. It is called
	// again until it is settled: until the lock is not there and never will be.
	takeBack(ctx context.Context, token string) (settled bool, err error)

	// view calls look with the locks of a part of the tree, perhaps more than once.
	view(ctx context.Context, p part, look func(*document, interval)) error
}

// A part says which locks of a tree a request needs.
type part struct {
	all   bool
	at    []string // clean paths: those that cover them
	below []string // clean paths: those below them
}

// An outcome is the result of a request that writes.
type outcome struct {
	lock  Lock      // granted or refreshed
	exact bool      // the storage's clock is known exactly
	at    time.Time // what it showed at the write

	err    error  // the verdict: why the request was refused
	fault  error  // the storage's: it says whether the write may have been applied
	claims string // the token of a lock that may have been added despite the fault
	left   bool   // the lock is there although the request was refused

	changed bool // waiters may want to know

	// A refresh was applied after the lock had run out, so it has to be undone: revived removes
	// the lock, unless it was refreshed since. It is called until it is settled.
	revived removal
}
