package docdb_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
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

var rounds = flag.Int("docdb.rounds", 30, "how many sequences of random commands to compare with a real server")

// Both get the same random commands. Values that each draws from its own clock are compared by
// type only.
func TestTheDatabaseInMemoryAnswersAsARealServer(t *testing.T) {
	uri := testserver.URI(t, "atomic")
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetRetryWrites(false))
	require.NoError(t, err)
	defer client.Disconnect(context.Background())
	commands, errs := 0, 0
	for seed := range uint64(*rounds) {
		name := fmt.Sprintf("docdb_%d_%d", time.Now().UnixNano(), seed)
		theirs, mine := client.Database(name), docdb.New()
		d := rand.New(rand.NewPCG(seed, 1))
		for range 60 {
			c := randomCommand(d)
			commands++
			want, failed := answerOf(t, theirs, c)
			got := inMemory(t, mine, name, c)
			if failed {
				errs++
			}
			require.Equal(t, essence(want), essence(got), "seed %d, the server's reply and that of memory, to %v", seed, c)
		}
		assert.NoError(t, theirs.Drop(t.Context()))
	}
	t.Logf("%d commands, %d of them refused", commands, errs)
	assert.True(t, errs > 0 && errs <= commands/2, "%d of %d refused: the commands are not a mixture", errs, commands)
}

// answerOf sends a command to the server. The reply to a refused command counts like any.
func answerOf(t *testing.T, db *mongo.Database, c bson.D) (reply bson.Raw, failed bool) {
	t.Helper()
	reply, err := db.RunCommand(t.Context(), c).Raw()
	if err == nil {
		return reply, false
	}
	var e mongo.CommandError
	if errors.As(err, &e) {
		return e.Raw, true
	}
	var w mongo.WriteException
	if errors.As(err, &w) {
		return w.Raw, true
	}
	t.Fatalf("to %v: %v", c, err)
	return nil, false
}

func inMemory(t *testing.T, db *docdb.DB, name string, c bson.D) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(append(append(bson.D{}, c...), bson.E{Key: "$db", Value: name}))
	require.NoError(t, err)
	command, err := docdb.Parse(raw)
	require.NoError(t, err)
	reply, _ := db.Do(command, time.Now(), false)
	out, err := bson.Marshal(reply)
	require.NoError(t, err)
	return out
}

// essence returns what must be the same in two replies: outcome, code, counts, and documents
// with their fields sorted by name. nModified is left out: it depends on whether the clock
// moved on in between.
func essence(reply bson.Raw) string {
	out := map[string]string{}
	var doc bson.D
	if err := bson.Unmarshal(reply, &doc); err != nil {
		return err.Error()
	}
	for _, e := range doc {
		switch e.Key {
		case "ok", "code", "n", "value", "lastErrorObject":
			out[e.Key] = canonical(e.Value)
		case "writeErrors":
			for _, w := range e.Value.(bson.A) {
				for _, f := range w.(bson.D) {
					if f.Key == "code" || f.Key == "index" {
						out["write error "+f.Key] += canonical(f.Value)
					}
				}
			}
		case "cursor":
			for _, f := range e.Value.(bson.D) {
				if f.Key == "firstBatch" {
					out["batch"] = canonical(f.Value)
				}
			}
		case "upserted":
			out[e.Key] = canonical(e.Value)
		}
	}
	return fmt.Sprint(out) // maps print sorted by key
}

func canonical(v any) string {
	switch v := v.(type) {
	case bson.D:
		out := map[string]string{}
		for _, e := range v {
			if e.Key == "at" || e.Key == "stamp" { // drawn from a clock
				out[e.Key] = fmt.Sprintf("%T", e.Value)
				continue
			}
			out[e.Key] = canonical(e.Value)
		}
		return fmt.Sprint(out)
	case bson.A:
		out := make([]string, len(v))
		for i := range v {
			out[i] = canonical(v[i])
		}
		return fmt.Sprint(out)
	case int32, int64, float64:
		return fmt.Sprint(v) // whatever the type, 1 is 1
	}
	return fmt.Sprintf("%T %v", v, v)
}

// pick returns one of some values.
func pick[T any](d *rand.Rand, some ...T) T { return some[d.IntN(len(some))] }

func randomDate(d *rand.Rand) bson.DateTime {
	return bson.DateTime(1_767_225_600_000 + int64(d.IntN(5)))
}

// randomCommand returns a command of a kind that the store sends. Keys and values are few, so
// that commands meet.
func randomCommand(d *rand.Rand) bson.D {
	switch d.IntN(10) {
	case 0:
		c := bson.D{{Key: "find", Value: "c"}, {Key: "filter", Value: randomFilter(d)}, {Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}}}
		if d.IntN(3) == 0 {
			c = append(c, bson.E{Key: "projection", Value: bson.D{{Key: pick(d, "expireAt", "under", "holders"), Value: d.IntN(2)}}})
		}
		return c
	case 1:
		return bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{append(bson.D{{Key: "_id", Value: randomKey(d)}}, randomFields(d)...)}}}
	case 2:
		return bson.D{{Key: "update", Value: "c"}, {Key: "ordered", Value: false}, {Key: "updates", Value: bson.A{randomUpdateOne(d), randomUpdateOne(d)}}}
	case 3:
		return bson.D{{Key: "delete", Value: "c"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: randomFilter(d)}, {Key: "limit", Value: 1}}}}}
	case 4:
		return bson.D{{Key: "findAndModify", Value: "c"}, {Key: "query", Value: randomFilter(d)}, {Key: "remove", Value: true}}
	}
	return bson.D{
		{Key: "findAndModify", Value: "c"}, {Key: "query", Value: randomFilter(d)}, {Key: "update", Value: randomUpdate(d)},
		{Key: "new", Value: d.IntN(3) > 0}, {Key: "upsert", Value: d.IntN(3) == 0}, {Key: "fields", Value: pick(d, bson.D{}, bson.D{{Key: "holders", Value: 0}})},
	}
}

func randomEpoch(d *rand.Rand) bson.ObjectID { return bson.ObjectID{byte(d.IntN(2))} }

func randomKey(d *rand.Rand) string { return pick(d, "a", "b", "a.b", "$c") }

func randomFields(d *rand.Rand) bson.D {
	fields := bson.D{{Key: "mongolock", Value: pick[any](d, 1, 2, "1", nil)}, {Key: "expireAt", Value: randomDate(d)}}
	if d.IntN(2) == 0 {
		fields = append(fields, bson.E{Key: "holders", Value: bson.D{{Key: pick(d, "x", "y"), Value: bson.D{
			{Key: "expireAt", Value: randomDate(d)}, {Key: "beat", Value: randomEpoch(d)}, {Key: "epoch", Value: randomEpoch(d)}, {Key: "ttl", Value: int64(2000)},
		}}}})
	}
	if d.IntN(3) == 0 {
		fields = append(fields, bson.E{Key: "under", Value: pick[any](d, bson.A{}, bson.A{1}, bson.A{1, int64(2)})})
	}
	if d.IntN(3) == 0 {
		fields = append(fields, bson.E{Key: "rev", Value: pick[any](d, 1, 2.0, bson.ObjectID{1}, true)})
	}
	return fields
}

// randomFilter always names a key, because of several documents that match either server may
// take any.
func randomFilter(d *rand.Rand) bson.D {
	f := bson.D{{Key: "_id", Value: randomKey(d)}}
	for range d.IntN(3) {
		path := pick(d, "expireAt", "holders.x.expireAt", "holders.y.expireAt", "holders.x", "mongolock", "rev", "under")
		more := bson.E{Key: path, Value: randomCondition(d)}
		if path == "under" {
			more = randomOfArray(d)
		}
		if !slices.ContainsFunc(f, func(e bson.E) bool { return e.Key == more.Key }) {
			f = append(f, more)
		}
	}
	if d.IntN(6) == 0 { // each holder ran out, or was written under another election
		return append(f[:1], bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: "holders.x.epoch", Value: bson.D{{Key: "$ne", Value: randomEpoch(d)}}}},
			bson.D{{Key: "holders.x.expireAt", Value: bson.D{{Key: "$lte", Value: randomDate(d)}}}},
		}}, bson.E{Key: "holders.y.beat", Value: randomEpoch(d)})
	}
	if d.IntN(6) == 0 {
		f = append(f, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: "holders.x", Value: bson.D{{Key: "$exists", Value: true}}}},
			bson.D{{Key: "holders.y.expireAt", Value: randomCondition(d)}},
		}})
	}
	return f
}

// randomOfArray returns a condition such as those on a line of waiters.
func randomOfArray(d *rand.Rand) bson.E {
	return pick(d,
		bson.E{Key: "under", Value: bson.D{{Key: "$in", Value: bson.A{2, 3}}}},
		bson.E{Key: "under", Value: bson.D{{Key: "$exists", Value: true}}},
		bson.E{Key: "under", Value: bson.D{{Key: "$ne", Value: 1}}},
		bson.E{Key: "under", Value: bson.A{1}},
		bson.E{Key: "under", Value: 1},
		bson.E{Key: "under.0", Value: d.IntN(3)},
		bson.E{Key: "under.1", Value: bson.D{{Key: "$exists", Value: d.IntN(2) == 0}}},
		bson.E{Key: "holders", Value: bson.D{}},
	)
}

func randomCondition(d *rand.Rand) any {
	op := pick(d, "$lte", "$gt", "$lt", "$gte", "$ne", "$exists", "$not", "$in", "$eq")
	switch op {
	case "$exists":
		return bson.D{{Key: op, Value: d.IntN(2) == 0}}
	case "$not":
		return bson.D{{Key: op, Value: bson.D{{Key: pick(d, "$gt", "$lte"), Value: randomDate(d)}}}}
	case "$in":
		return bson.D{{Key: op, Value: bson.A{randomDate(d), 1}}}
	}
	return bson.D{{Key: op, Value: pick[any](d, randomDate(d), randomDate(d), 1, "1")}}
}

// randomUpdate never names a path twice, because servers differ in when they notice.
func randomUpdate(d *rand.Rand) bson.D {
	var u bson.D
	if d.IntN(2) == 0 {
		u = append(u, bson.E{Key: "$set", Value: bson.D{{Key: pick(d, "mode", "holders.x.released", "holders.x.beat", "rev"), Value: pick[any](d, "exclusive", true, 3, randomEpoch(d))}}})
	}
	if d.IntN(2) == 0 {
		u = append(u, bson.E{Key: "$max", Value: bson.D{{Key: pick(d, "expireAt", "holders.x.expireAt"), Value: randomDate(d)}}})
	}
	if d.IntN(4) == 0 {
		u = append(u, bson.E{Key: "$unset", Value: bson.D{{Key: "holders.y", Value: ""}}})
	}
	if d.IntN(4) == 0 {
		u = append(u, bson.E{Key: "$inc", Value: bson.D{{Key: "limit", Value: 1}}})
	}
	switch under := d.IntN(4); d.IntN(12) {
	case 0, 1:
		u = append(u, bson.E{Key: "$push", Value: bson.D{{Key: "under", Value: under}}})
	case 2:
		u = append(u, bson.E{Key: "$pull", Value: bson.D{{Key: "under", Value: under}}})
	case 3:
		u = append(u, bson.E{Key: "$pullAll", Value: bson.D{{Key: "under", Value: bson.A{under, 1}}}})
	}
	if len(u) == 0 || d.IntN(2) == 0 {
		u = append(u, bson.E{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}})
	}
	return u
}

func randomUpdateOne(d *rand.Rand) bson.D {
	return bson.D{{Key: "q", Value: randomFilter(d)}, {Key: "u", Value: randomUpdate(d)}, {Key: "upsert", Value: d.IntN(4) == 0}}
}
