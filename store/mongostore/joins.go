package mongostore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/mongoclock"
)

// A joinGates lets the joins of this process into a key one at a time, and
// remembers which keys were shared lately. The zero value is ready.
type joinGates struct {
	mu     sync.Mutex // protects doors and shared; never held across a command
	doors  map[string]*joinGate
	shared map[string]mongoclock.Moment // keys found shared, and until when that is worth something

	lost atomic.Int64 // joins that somebody else was quicker than, for the tests
}

// A joinGate is passed by who puts something into the channel.
type joinGate struct {
	inside chan struct{}
	users  int // inside and before it; protected by joinGates.mu
}

// sharedFor is for how long a key is taken to be shared that was found so. A wrong
// guess costs a trip.
const sharedFor = 10 * time.Second

// enter waits for its turn at a key, until ctx ends.
func (q *joinGates) enter(ctx context.Context, key string) (leave func(), err error) {
	q.mu.Lock()
	d := q.doors[key]
	if d == nil {
		if q.doors == nil {
			q.doors = map[string]*joinGate{}
		}
		d = &joinGate{inside: make(chan struct{}, 1)}
		q.doors[key] = d
	}
	d.users++
	q.mu.Unlock()
	select {
	case d.inside <- struct{}{}:
		return func() { <-d.inside; q.pass(key, d) }, nil
	case <-ctx.Done():
		q.pass(key, d)
		return nil, context.Cause(ctx)
	}
}

// pass forgets the door if nobody is at it any more.
func (q *joinGates) pass(key string, d *joinGate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.users--; d.users == 0 {
		delete(q.doors, key)
	}
}

// saw remembers whether a key is shared.
func (q *joinGates) saw(key string, now mongoclock.Moment, shared bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !shared {
		delete(q.shared, key)
		return
	}
	if q.shared == nil {
		q.shared = map[string]mongoclock.Moment{}
	}
	if len(q.shared) >= 1024 { // swept as it grows, so that it does not
		for old, until := range q.shared {
			if until < now {
				delete(q.shared, old)
			}
		}
	}
	q.shared[key] = now.Add(sharedFor)
}

// expected reports whether somebody probably shares the key.
func (q *joinGates) expected(key string, now mongoclock.Moment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return now < q.shared[key]
}
