package lease

import (
	"sync"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/swept"
)

// A Memory holds what a store remembers of its leases, by their IDs. The zero value is ready
// for use.
type Memory[X any] struct {
	// These may be nil. OnRenewed is called for a renewal that was sent at sent, and may change
	// what is remembered. It runs with the memory locked. OnLost is called for a lease that a
	// renewal found gone, before it is forgotten.
	OnRenewed func(l *Lease[X], sent server.Moment)
	OnLost    func(l Lease[X])

	mu     sync.Mutex // protects leases; never held across a command
	leases swept.Map[string, Lease[X]]
}

// A Lease is remembered from its grant to its end. If a lease is not remembered, the store
// reads it, or releases it with more care than needed.
type Lease[X any] struct {
	From  server.Moment // when the claim was sent
	Until server.Moment // it may be trusted until then, and so is worth remembering
	Own   X
}

func (m *Memory[X]) Granted(id string, l Lease[X], now server.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases.Put(id, l, func(_ string, old Lease[X]) bool { return old.Until < now }) // those that were not released
}

// Renewed remembers until when a renewal that was sent at sent lets a lease be trusted.
func (m *Memory[X]) Renewed(id string, sent, until server.Moment) {
	m.Change(id, func(l *Lease[X]) {
		l.Until = max(l.Until, until)
		if m.OnRenewed != nil {
			m.OnRenewed(l, sent)
		}
	})
}

func (m *Memory[X]) Change(id string, change func(*Lease[X])) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l, ok := m.leases.All[id]; ok {
		change(&l)
		m.leases.All[id] = l
	}
}

func (m *Memory[X]) Of(id string) (Lease[X], bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.leases.All[id]
	return l, ok
}

// Find returns a lease that is meets, if one is remembered.
func (m *Memory[X]) Find(is func(X) bool) (Lease[X], bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.leases.All {
		if is(l.Own) {
			return l, true
		}
	}
	return Lease[X]{}, false
}

func (m *Memory[X]) Forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leases.All, id)
}

// Lost forgets a lease that a renewal found gone.
func (m *Memory[X]) Lost(id string) {
	if l, ok := m.Of(id); ok && m.OnLost != nil {
		m.OnLost(l)
	}
	m.Forget(id)
}
