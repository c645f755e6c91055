package mongostore

import (
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongoclock"
)

// memory is what a store remembers of its leases, for their release.
type memory struct {
	mu      sync.Mutex // protects the rest; never held across a command
	leases  map[string]remembered
	sweepAt int
}

// A remembered is remembered from its grant to its end. What is not remembered is
// looked up, or released with more care than needed.
type remembered struct {
	since time.Time
	until mongoclock.Moment // may be trusted, and so is worth remembering
	rev   bson.ObjectID     // that its grant wrote, if it has the key alone
}

func (ml *memory) granted(id string, l remembered, now mongoclock.Moment) {
	ml.mu.Lock()
	defer ml.mu.Unlock()
	if ml.leases == nil {
		ml.leases = map[string]remembered{}
	}
	ml.leases[id] = l
	if len(ml.leases) < ml.sweepAt {
		return
	}
	for old, l := range ml.leases { // those that nobody released
		if l.until < now {
			delete(ml.leases, old)
		}
	}
	ml.sweepAt = max(64, 2*len(ml.leases))
}

func (ml *memory) renewed(id string, until mongoclock.Moment) {
	ml.mu.Lock()
	defer ml.mu.Unlock()
	if l, ok := ml.leases[id]; ok && l.until < until {
		l.until = until
		ml.leases[id] = l
	}
}

func (ml *memory) of(id string) (remembered, bool) {
	ml.mu.Lock()
	defer ml.mu.Unlock()
	l, ok := ml.leases[id]
	return l, ok
}

func (ml *memory) forget(ids ...string) {
	ml.mu.Lock()
	defer ml.mu.Unlock()
	for _, id := range ids {
		delete(ml.leases, id)
	}
}
