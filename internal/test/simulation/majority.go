package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// readsMajority reports whether a command reads only what a majority has.
func readsMajority(c docdb.Command) bool {
	concern, _ := lookup(c.Body, "readConcern").(bson.D)
	return c.Name == "find" && lookup(concern, "level") == "majority"
}

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
