package docdb_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// usersCommand is what an application sends beside a lock: updates and deletions of many,
// counts, the first by some order, paths into arrays.
func usersCommand(d *rand.Rand) bson.D {
	filter := usersFilter(d)
	switch d.IntN(8) {
	case 0:
		return bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: filter}, {Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}}, {Key: "multi", Value: true},
		}}}}
	case 1:
		return bson.D{{Key: "delete", Value: "c"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: append(filter, bson.E{Key: "_id", Value: bson.D{{Key: "$gt", Value: 3}}})}, {Key: "limit", Value: 0}}}}}
	case 2:
		return bson.D{{Key: "aggregate", Value: "c"}, {Key: "cursor", Value: bson.D{}}, {Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$match", Value: filter}},
			bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}},
		}}}
	case 3:
		return bson.D{{Key: "findAndModify", Value: "c"}, {Key: "query", Value: filter}, {Key: "new", Value: true},
			{Key: "sort", Value: bson.D{{Key: "n", Value: pick(d, 1, -1)}, {Key: "_id", Value: 1}}}, {Key: "update", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "u", Value: d.IntN(9)}}}}}}
	case 4, 5:
		return bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{
			{Key: "_id", Value: d.IntN(6)}, {Key: "n", Value: d.IntN(5)}, {Key: "tags", Value: pick[any](d, bson.A{"a", "b"}, bson.A{}, "a", 7)},
			{Key: "items", Value: bson.A{bson.D{{Key: "sku", Value: d.IntN(3)}}, bson.D{{Key: "sku", Value: d.IntN(3)}, {Key: "n", Value: 1}}}},
		}}}}
	}
	return bson.D{{Key: "find", Value: "c"}, {Key: "filter", Value: filter}, {Key: "sort", Value: bson.D{{Key: "_id", Value: pick(d, 1, -1)}}}}
}

func usersFilter(d *rand.Rand) bson.D {
	value := pick[any](d, 0, 1, 2, "a")
	operators := pick(d, "$eq", "$ne", "$gt", "$lte", "$in", "$nin", "$exists", "$not", "$type")
	path := pick(d, "n", "tags", "items.sku", "items.n", "items.0.sku", "tags.1", "nowhere")
	switch operators {
	case "$in", "$nin":
		return bson.D{{Key: path, Value: bson.D{{Key: operators, Value: bson.A{value, 3}}}}}
	case "$exists":
		return bson.D{{Key: path, Value: bson.D{{Key: operators, Value: d.IntN(2) == 0}}}}
	case "$type":
		return bson.D{{Key: path, Value: bson.D{{Key: operators, Value: pick(d, "number", "string", "object", "array", "date")}}}}
	case "$not":
		return bson.D{{Key: path, Value: bson.D{{Key: operators, Value: bson.D{{Key: "$gte", Value: value}}}}}}
	case "$eq":
		return bson.D{{Key: path, Value: value}}
	}
	return bson.D{{Key: path, Value: bson.D{{Key: operators, Value: value}}}}
}

func TestTheDatabaseInMemoryAnswersApplicationsAsARealServer(t *testing.T) {
	uri := testserver.URI(t, "atomic")
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetRetryWrites(false))
	require.NoError(t, err)
	defer client.Disconnect(context.Background())
	for seed := range uint64(*rounds) {
		name := fmt.Sprintf("docdb_users_%d_%d", time.Now().UnixNano(), seed)
		theirs, mine := client.Database(name), docdb.New()
		d := rand.New(rand.NewPCG(seed, 2))
		for range 60 {
			c := usersCommand(d)
			want, _ := answerOf(t, theirs, c)
			require.Equal(t, essence(want), essence(inMemory(t, mine, name, c)), "seed %d, the server's reply and that of memory, to %v", seed, c)
		}
		assert.NoError(t, theirs.Drop(t.Context()))
	}
}
