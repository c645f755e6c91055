package lease

import (
	"sync"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/swept"
)

// A Memory holds what is remembered of the leases of a store, by their IDs. The zero value is ready
// for use.
type Memory struct {
	mu     sync.Mutex // protects leases; never held across a command
	leases swept.Map[string, Lease]
}

// A Lease is remembered from its grant to its end. If a lease is not remembered, the store
// reads it, or releases it with more care than needed.
type Lease struct {
	From  server.Moment // when the claim was sent
	Until server.Moment // it may be trusted until then, and so is worth remembering
	Rev   int64         // the revision that the grant wrote, of an exclusive holder
}

func (m *Memory) Granted(id string, l Lease, now server.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases.Put(id, l, func(_ string, old Lease) bool { return old.Until < now }) // those that were not released
}

// renewed remembers until when a lease may be trusted now.
func (m *Memory) renewed(id string, until server.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l, ok := m.leases.All[id]; ok {
		l.Until = max(l.Until, until)
		m.leases.All[id] = l
	}
}

func (m *Memory) Of(id string) (Lease, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.leases.All[id]
	return l, ok
}

func (m *Memory) Forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leases.All, id)
}
