package system

import (
	"os"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// The server removes expired documents once a minute. A server of the test's own can be told
// to do so once a second.
func TestTheTTLIndexRemovesOnlyLocksThatExpiredLongAgo(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl", "atomic")
	uri := os.Getenv("MONGODB_URI")
	if testserver.Has("process") {
		uri = testserver.Start(t, "").URI
	}
	f := newFixtureAt(t, uri)
	if testserver.Has("process") {
		often := bson.D{{Key: "setParameter", Value: 1}, {Key: "ttlMonitorSleepSecs", Value: 1}}
		if err := f.coll.Database().Client().Database("admin").RunCommand(f.ctx(), often).Err(); err != nil {
			t.Log("the sweep comes as often as it does:", err)
		}
	}
	require.NoError(t, f.client().EnsureIndex(f.ctx()))
	ago := func(d time.Duration) bson.E { return bson.E{Key: fieldExpireAt, Value: time.Now().Add(-d)} }
	ours := bson.E{Key: fieldVersion, Value: 1}
	for key, fields := range map[string]bson.D{
		"ours, two hours ago":              {ours, ago(2 * time.Hour)},
		"ours, half an hour ago":           {ours, ago(time.Hour / 2)},
		"ours, in a while":                 {ours, ago(-time.Hour)},
		"foreign, two hours ago":           {ago(2 * time.Hour)},
		"foreign, without an end":          {{Key: "name", Value: "settings"}},
		"a newer version's, two hours ago": {{Key: fieldVersion, Value: 2}, ago(2 * time.Hour)},
	} {
		_, err := f.coll.InsertOne(f.ctx(), append(bson.D{{Key: "_id", Value: key}}, fields...))
		require.NoError(t, err)
	}
	keys := func() []string {
		var found []string
		if err := f.coll.Distinct(f.ctx(), "_id", bson.D{}).Decode(&found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	for start := time.Now(); slices.Contains(keys(), "ours, two hours ago"); time.Sleep(100 * time.Millisecond) {
		require.LessOrEqual(t, time.Since(start), 2*time.Minute, "not swept in two minutes")
	}
	assert.Len(t, keys(), 5, "the sweep left")
}

func TestAnotherIndexOnTheSameFieldIsLeftAlone(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl")
	log := &logBuffer{}
	coll := testserver.Collection(t, testserver.Client(t))
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "expireAt", Value: 1}}})
	require.NoError(t, err)
	client := newClientOn(t, coll, mongolock.WithLogger(log.logger()))
	tryAcquire(t, client, "k")
	err = client.EnsureIndex(t.Context()) // before 5.0 a server has only one index on a field
	failed, logged := err != nil, len(log.lines()) > 0
	assert.Equal(t, logged, failed, "EnsureIndex: %v; logged %q", err, log.lines())
	specs, err := coll.Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(specs, func(s mongo.IndexSpecification) bool { return s.Name == "expireAt_1" && s.ExpireAfterSeconds == nil }), "somebody's index became one of %+v", specs)
}
