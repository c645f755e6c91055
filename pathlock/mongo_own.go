package pathlock

import "sync"

// ownMost limits each of the two generations of ownLocks, and ownLargest what is kept of one
// lock.
const (
	ownMost    = 4096
	ownLargest = 1024
)

// ownLocks remembers what never changes of the last locks that this process granted: their
// paths, depths and owners. A Release of one of them needs no conditions about these. A lock
// that is forgotten only costs a little time.
type ownLocks struct {
	mu          sync.Mutex // protects the rest
	now, before map[string]Lock
}

func (o *ownLocks) keep(l Lock) {
	if len(l.Path)+len(l.Owner) > ownLargest {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now == nil || len(o.now) >= ownMost {
		o.now, o.before = make(map[string]Lock), o.now
	}
	o.now[l.Token] = l
}

// take returns a lock and forgets it.
func (o *ownLocks) take(token string) (l Lock, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, locks := range []map[string]Lock{o.now, o.before} {
		if l, known = locks[token]; known {
			delete(locks, token)
			return l, true
		}
	}
	return Lock{}, false
}
