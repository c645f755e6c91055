package mongolease

import (
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
)

// A Memory holds what a store remembers of its leases, by their IDs. The zero value is ready
// for use.
type Memory[X any] struct {
	// These may be nil. OnRenewed is called for a renewal that was sent at sent, and may change
	// what is remembered. It runs with the memory locked, as OnForgotten does. OnLost is called
	// for a lease that a renewal found gone, before it is forgotten.
	OnRenewed   func(l *Lease[X], sent mongoclock.Moment)
	OnForgotten func(id string)
	OnLost      func(l Lease[X])

	mu      sync.Mutex // protects the rest; never held across a command
	leases  map[string]Lease[X]
	sweepAt int
}

// A Lease is remembered from its grant to its end. If a lease is not remembered, the store
// reads it, or releases it with more care than needed.
type Lease[X any] struct {
	Since time.Time
	From  mongoclock.Moment // when the claim was sent
	Until mongoclock.Moment // it may be trusted until then, and so is worth remembering
	Kept  bool              // it may be under a session, which keeps it beyond Until
	Named bool              // a renewal of its own put it under a session, or took it out, or may have
	Own   X
}

// Granted remembers a lease.
func (m *Memory[X]) Granted(id string, l Lease[X], now mongoclock.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leases == nil {
		m.leases = map[string]Lease[X]{}
	}
	m.leases[id] = l
	if len(m.leases) < m.sweepAt {
		return
	}
	for old, l := range m.leases { // those that were not released
		if l.Until < now {
			m.forget(old)
		}
	}
	m.sweepAt = max(64, 2*len(m.leases))
}

// Renewed remembers until when a renewal that was sent at sent lets a lease be trusted.
func (m *Memory[X]) Renewed(id string, sent, until mongoclock.Moment) {
	m.Change(id, func(l *Lease[X]) {
		l.Until = max(l.Until, until)
		if m.OnRenewed != nil {
			m.OnRenewed(l, sent)
		}
	})
}

// Change changes what is remembered of a lease, if it is remembered.
func (m *Memory[X]) Change(id string, change func(*Lease[X])) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l, ok := m.leases[id]; ok {
		change(&l)
		m.leases[id] = l
	}
}

// Of returns what is remembered of a lease.
func (m *Memory[X]) Of(id string) (Lease[X], bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.leases[id]
	return l, ok
}

// Find returns a lease that is meets, if one is remembered.
func (m *Memory[X]) Find(is func(X) bool) (Lease[X], bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.leases {
		if is(l.Own) {
			return l, true
		}
	}
	return Lease[X]{}, false
}

// Forget forgets leases that have ended.
func (m *Memory[X]) Forget(ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.forget(id)
	}
}

// Lost forgets a lease that a renewal found gone.
func (m *Memory[X]) Lost(id string) {
	if l, ok := m.Of(id); ok && m.OnLost != nil {
		m.OnLost(l)
	}
	m.Forget(id)
}

func (m *Memory[X]) forget(id string) {
	delete(m.leases, id)
	if m.OnForgotten != nil {
		m.OnForgotten(id)
	}
}
