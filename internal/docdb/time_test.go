package docdb_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/docdb"
)

// A primary that lost writes, and one that follows: what a client heard from the first
// the second learns from the client, and goes on from there.
func TestAWriteIsLaterThanWhatItsClientHasHeard(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	write := func(db *docdb.DB, heard bson.Timestamp) {
		t.Helper()
		raw, err := bson.Marshal(bson.D{
			{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: bson.NewObjectID()}}}},
			{Key: "$clusterTime", Value: bson.D{{Key: "clusterTime", Value: heard}}}, {Key: "$db", Value: "d"},
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := docdb.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		db.Hear(c.ClusterTime)
		db.Do(c, now, false)
	}
	first, second := docdb.New(), docdb.New()
	for range 3 {
		write(first, bson.Timestamp{})
	}
	lost := first.Last()
	write(second, lost)
	if got := second.Last(); !got.After(lost) {
		t.Errorf("%v was written at %v, after %v was heard of", got, now, lost)
	}
	if second.Hear(bson.Timestamp{T: 1}); second.ClusterTime() != second.Last() {
		t.Error("an old time turned the clock back")
	}
	later := bson.Timestamp{T: second.Last().T + 60}
	second.Hear(later)
	if fork := second.Fork(0); fork.ClusterTime() != later {
		t.Errorf("a fork forgot what was heard: %v", fork.ClusterTime())
	}
}
