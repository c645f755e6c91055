package simulation

import (
	"time"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// settled is the member's data without what may be rolled back. A primary that was
// deposed and does not know has it as it was then.
func (m *member) settled() *docdb.DB {
	for n := m.db.Len(); n > m.point; n-- {
		if at, ok := m.c.committed(m, n); ok && !at.After(time.Now()) {
			m.point = n
		}
	}
	if m.point >= m.db.Len() {
		return m.db
	}
	return m.db.Fork(m.point)
}
