package mongobase

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
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
		{Key: "$currentDate", Value: bson.D{{Key: "lock.at", Value: true}, {Key: "lock.waits.x:a:1.seen", Value: true}}},
	}
	b := Base{Clock: mongoclock.New(mongoclock.Monotonic())}
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	b.Clock.Observe(now, b.Clock.Now())
	assert.Equal(t, update, b.Stamped(update))
	b.flat.Store(true)
	assert.Equal(t, bson.D{
		{Key: "$set", Value: bson.D{{Key: "lock.id", Value: "x"}, {Key: "lock.waits.x:a:1.seen", Value: Date(now)}}},
		{Key: "$currentDate", Value: bson.D{{Key: "lock_at", Value: true}}},
	}, b.Stamped(update))
	assert.Len(t, update[0].Value, 1, "the caller's")
	assert.Equal(t, "lock.at", update[1].Value.(bson.D)[0].Key, "the caller's")
}
