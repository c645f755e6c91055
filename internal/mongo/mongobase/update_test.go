package mongobase

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestAnUpdateHasEachOperatorOnce(t *testing.T) {
	u := Change{}.Set("a", 1).Unset("b").Set("c", 2).Unset("d", "e").Add("$inc")
	assert.Equal(t, Change{
		{Key: "$set", Value: bson.D{{Key: "a", Value: 1}, {Key: "c", Value: 2}}},
		{Key: "$unset", Value: bson.D{{Key: "b", Value: ""}, {Key: "d", Value: ""}, {Key: "e", Value: ""}}},
	}, u)
}

// FerretDB's clock writes only fields of the document itself.
func TestAServerWithoutPathsForItsClockWritesBesideTheLock(t *testing.T) {
	update := bson.D{
		{Key: "$set", Value: bson.D{{Key: "lock.id", Value: "x"}}},
		{Key: "$currentDate", Value: bson.D{{Key: "lock.at", Value: true}}},
	}
	var b Base
	assert.Equal(t, update, b.Stamped(update))
	b.flat.Store(true)
	assert.Equal(t, bson.D{
		{Key: "$set", Value: bson.D{{Key: "lock.id", Value: "x"}}},
		{Key: "$currentDate", Value: bson.D{{Key: "lock_at", Value: true}}},
	}, b.Stamped(update))
	assert.Equal(t, "lock.at", update[1].Value.(bson.D)[0].Key, "the caller's")
}
