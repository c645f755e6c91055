package mongostore_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

const (
	manyKeys = 20_000
	someHeap = 2 << 20 // bytes: less than 110 for each key
)

// Not beside other tests, which have a part in the heap.
func TestAListOfManyKeysIsNotKeptInMemory(t *testing.T) {
	assert.Less(t, heapOfAList(t, func(mongolock.Status) {}), someHeap, "bytes")
}

func TestControlAListThatIsKeptIsSeen(t *testing.T) {
	var all []mongolock.Status
	assert.Greater(t, heapOfAList(t, func(s mongolock.Status) { all = append(all, s) }), someHeap, "bytes")
	runtime.KeepAlive(all)
}

// heapOfAList returns by how much the live heap grows at most while keys are listed.
func heapOfAList(t *testing.T, take func(mongolock.Status)) int {
	driver := testserver.Client(t)
	coll := testserver.Collection(t, driver)
	docs := make([]any, manyKeys)
	end := time.Now().Add(time.Hour)
	for i := range docs {
		docs[i] = bson.D{
			{Key: "_id", Value: fmt.Sprintf("key/%06d", i)}, {Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"},
			{Key: "holders", Value: bson.D{{Key: fmt.Sprint("ID", i), Value: bson.D{
				{Key: "owner", Value: "host/1"}, {Key: "note", Value: ""}, {Key: "since", Value: end}, {Key: "expireAt", Value: end},
				{Key: "ttl", Value: int64(30_000)}, {Key: "beat", Value: int64(i + 1)}, {Key: "epoch", Value: bson.NilObjectID},
			}}}},
			{Key: "expireAt", Value: end}, {Key: "rev", Value: int64(i + 1)}, {Key: "at", Value: end},
		}
	}
	_, err := coll.InsertMany(t.Context(), docs)
	require.NoError(t, err)
	clear(docs)
	client, err := mongolock.New(coll, mongolock.WithoutIndex(), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()

	before, most, seen := liveHeap(), 0, 0
	for s, err := range client.List(t.Context(), "key/") {
		require.NoError(t, err)
		take(s)
		if seen++; seen%(manyKeys/10) == 0 {
			most = max(most, liveHeap()-before)
		}
	}
	require.Equal(t, manyKeys, seen)
	t.Logf("%d keys: %d kB", seen, most>>10)
	return most
}

func liveHeap() int {
	var m runtime.MemStats
	for range 3 { // a pool gives its buffers up at the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) //nolint:gosec // a heap of some megabytes
}
