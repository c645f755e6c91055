//go:build !knobs

package doclock

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/lease"
)

// tamper takes nothing out of the commands of a store: that needs the faults of internal/test/controls.
func (s *docStore) tamper(with func(lease.Step, bson.D) bson.D) {
	if with != nil {
		panic("built without the faults of internal/test/controls")
	}
}
