package mongobase

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestABulkCountsOneCommandForEachKindOfWrite(t *testing.T) {
	for _, c := range []struct {
		models           []mongo.WriteModel
		updates, deletes uint64
	}{
		{[]mongo.WriteModel{mongo.NewUpdateOneModel(), mongo.NewUpdateOneModel()}, 1, 0},
		{[]mongo.WriteModel{mongo.NewUpdateManyModel()}, 1, 0},
		{[]mongo.WriteModel{mongo.NewDeleteOneModel(), mongo.NewUpdateOneModel()}, 1, 1},
	} {
		var b Base
		b.countBulk(c.models)
		assert.Equal(t, c.updates, b.Commands()["update"])
		assert.Equal(t, c.deletes, b.Commands()["delete"])
	}
}
