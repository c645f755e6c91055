package pathlock

import "sync"

// ownMost limits each of the two generations of ownLocks.
const ownMost = 4096

// ownLocks has the tokens of the last locks that this process granted. A Release of one of them
// needs no conditions about what never changes. A lock that is forgotten only costs a little time.
type ownLocks struct {
	mu          sync.Mutex // protects the rest
	now, before map[string]bool
}

func (o *ownLocks) keep(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now == nil || len(o.now) >= ownMost {
		o.now, o.before = make(map[string]bool), o.now
	}
	o.now[token] = true
}

// take forgets a lock, and reports whether it was known.
func (o *ownLocks) take(token string) (known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known = o.now[token] || o.before[token]
	delete(o.now, token)
	delete(o.before, token)
	return known
}
