package docdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// A primary loses writes, and another follows. The second learns from the client which time
// the first had reached, and goes on from there.
func TestAWriteIsLaterThanTheTimesThatItsClientKnows(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	write := func(db *docdb.DB, heard bson.Timestamp) {
		t.Helper()
		raw, err := bson.Marshal(bson.D{
			{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: bson.NewObjectID()}}}},
			{Key: "$clusterTime", Value: bson.D{{Key: "clusterTime", Value: heard}}}, {Key: "$db", Value: "d"},
		})
		require.NoError(t, err)
		c, err := docdb.Parse(raw)
		require.NoError(t, err)
		db.Hear(c.ClusterTime)
		db.Do(c, now, false)
	}
	first, second := docdb.New(), docdb.New()
	for range 3 {
		write(first, bson.Timestamp{})
	}
	lost := first.Last()
	write(second, lost)
	assert.True(t, second.Last().After(lost), "written at %v, though its client knew %v", second.Last(), lost)
	second.Hear(bson.Timestamp{T: 1})
	assert.Equal(t, second.Last(), second.ClusterTime(), "an old time turned the clock back")
	later := bson.Timestamp{T: second.Last().T + 60}
	second.Hear(later)
	assert.Equal(t, later, second.Fork(0).ClusterTime(), "a fork forgot the time that it knew")
}
