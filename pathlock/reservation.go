package pathlock

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"
)

const (
	// reservedFor is how long a reservation stands. A waiter that goes on waiting writes it again, so
	// this is how long one that died keeps shared locks out.
	reservedFor = 30 * time.Second

	// mostReserved is how many reservations a tree has. Further waiters have none until others are gone.
	mostReserved = 64

	unreserveFor = 2 * time.Second // bounds the attempt to remove a reservation
)

// A reservation is the entry of an exclusive waiter that shared locks keep out. While it stands no
// shared lock that overlaps it is granted, so those that it waits for become fewer. No safety depends
// on it.
type reservation struct {
	ID    string    `json:"id"`
	Path  string    `json:"path"`
	Depth Depth     `json:"depth"`
	Until time.Time `json:"until"` // by the storage's clock
}

// stands reports whether a reservation counts. If its end is further away than one can be, another
// clock wrote it, that of a primary that failed.
func (v reservation) stands(now interval) bool {
	return v.Until.After(now.Earliest) && !v.Until.After(now.Latest.Add(reservedFor+time.Second))
}

// keptOut returns the reservations that a request has to let go first.
func keptOut(r Request, reserved []reservation, now interval) (first []reservation) {
	for _, v := range reserved {
		if overlap(r, Lock{Path: v.Path, Mode: Exclusive, Depth: v.Depth}) && r.Mode == Shared && v.stands(now) {
			first = append(first, v)
		}
	}
	return first
}

// A waiter is one LockWait. A request that does not wait has a nil one.
type waiter struct {
	id    string
	since time.Time
	again bool        // an attempt of it was refused before
	slept func(error) // tells the observer that it waits no more; nil: it has not slept yet

	mu       sync.Mutex // protects the rest
	over     bool       // LockWait has returned
	reserves bool       // its reservation may be in the tree
}

func newWaiter() *waiter { return &waiter{id: rand.Text()[:10], since: time.Now()} }

// reservation returns what a waiter that was refused has to write, and which entries of the tree are
// of no use any more. mine is nil if it needs no reservation, or if the one that it has lasts for a
// while.
func (w *waiter) reservation(c *ConflictError, reserved []reservation, now interval) (mine *reservation, useless []string) {
	if w == nil || c.Request.Mode != Exclusive || !c.amongShared() {
		return nil, nil
	}
	standing := 0
	for _, v := range reserved {
		switch {
		case v.ID == w.id && v.Until.After(now.Latest.Add(reservedFor/2)):
			return nil, nil
		case v.ID == w.id:
		case v.stands(now):
			standing++
		default:
			useless = append(useless, v.ID)
		}
	}
	if standing >= mostReserved || !w.reserve() {
		return nil, nil
	}
	return &reservation{ID: w.id, Path: c.Request.Path, Depth: c.Request.Depth, Until: now.end(reservedFor)}, useless
}

// amongShared reports whether one of the locks in the way is shared.
func (e *ConflictError) amongShared() bool {
	return slices.ContainsFunc(slices.Concat(e.Parents, e.Same, e.Children), func(l Lock) bool { return l.Mode == Shared })
}

// reserve records that a reservation is written. It returns false if LockWait has returned.
func (w *waiter) reserve() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reserves = w.reserves || !w.over
	return !w.over
}

// wakes returns how long a waiter sleeps at most, so that its reservation goes on.
func (w *waiter) wakes() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reserves {
		return reservedFor / 2
	}
	return pollLive
}

// left reports, after an attempt, whether LockWait has returned meanwhile, so that a reservation of the
// attempt is to be removed.
func (w *waiter) left() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over && w.reserves
}

// ends records that LockWait returns, and reports whether there may be a reservation to remove.
func (w *waiter) ends() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	return w.reserves
}

// ended ends a waiter, whether it was served or gave up.
func (t *Tree) ended(w *waiter, err error) {
	if w.slept != nil {
		w.slept(err)
	}
	t.seen.mu.Lock()
	delete(t.seen.waiters, w)
	t.seen.mu.Unlock()
	if w.ends() {
		t.background.Run(func() { t.unreserve(w) })
	}
}

// unreserve removes a reservation, and wakes those that it kept out. If that fails, it runs out.
func (t *Tree) unreserve(w *waiter) {
	ctx, cancel := context.WithTimeout(context.Background(), unreserveFor)
	defer cancel()
	t.writeNow(ctx, func(ctx context.Context) outcome { return t.store.unreserve(ctx, w.id) })
}
