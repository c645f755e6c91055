package mongostore

import (
	"context"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/swept"
)

// joinGates lets the joins of this process into a key one at a time, and remembers which keys
// were shared lately. The zero value is ready for use.
type joinGates struct {
	mu     sync.Mutex // protects gates and shared; never held across a command
	gates  map[string]*joinGate
	shared swept.Map[string, server.Moment] // keys found shared, and until when that counts
}

// A joinGate is a one-slot semaphore: sending into inside enters it.
type joinGate struct {
	inside chan struct{}
	users  int // goroutines inside it and waiting for it; protected by joinGates.mu
}

// sharedFor is how long a key that was found shared is assumed to be shared. A wrong guess
// costs a trip.
const sharedFor = 10 * time.Second

// enter waits for its turn at a key, until ctx ends.
func (q *joinGates) enter(ctx context.Context, key string) (leave func(), err error) {
	q.mu.Lock()
	g := q.gates[key]
	if g == nil {
		if q.gates == nil {
			q.gates = map[string]*joinGate{}
		}
		g = &joinGate{inside: make(chan struct{}, 1)}
		q.gates[key] = g
	}
	g.users++
	q.mu.Unlock()
	select {
	case g.inside <- struct{}{}:
		return func() { <-g.inside; q.leave(key, g) }, nil
	case <-ctx.Done():
		q.leave(key, g)
		return nil, context.Cause(ctx)
	}
}

func (q *joinGates) leave(key string, g *joinGate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if g.users--; g.users == 0 {
		delete(q.gates, key)
	}
}

func (q *joinGates) saw(key string, now server.Moment, shared bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !shared {
		delete(q.shared.All, key)
		return
	}
	q.shared.Put(key, now.Add(sharedFor), func(_ string, until server.Moment) bool { return until < now })
}

func (q *joinGates) expected(key string, now server.Moment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return now < q.shared.All[key]
}
