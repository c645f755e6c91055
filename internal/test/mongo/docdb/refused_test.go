package docdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// MongoDB refuses these when it parses them, whether a document matches or not. Other servers take some.
func TestACommandThatMongoDBWouldNotParseIsRefused(t *testing.T) {
	field := func(operator string, paths ...string) bson.E {
		fields := bson.D{}
		for _, p := range paths {
			fields = append(fields, bson.E{Key: p, Value: 1})
		}
		return bson.E{Key: operator, Value: fields}
	}
	update := func(operators ...bson.E) bson.D {
		return bson.D{{Key: "findAndModify", Value: "c"}, {Key: "query", Value: bson.D{}}, {Key: "update", Value: bson.D(operators)}}
	}
	find := func(projection ...bson.E) bson.D {
		return bson.D{{Key: "find", Value: "c"}, {Key: "projection", Value: bson.D(projection)}}
	}
	for what, c := range map[string]struct {
		command bson.D
		code    int32
	}{
		"one path by two operators":  {update(field("$set", "a"), field("$max", "a")), 40},
		"one path twice":             {update(field("$unset", "a.b", "a.b")), 40},
		"a path and a part of it":    {update(field("$set", "a"), field("$unset", "a.b")), 40},
		"a part of it first":         {update(field("$currentDate", "a.b"), field("$set", "a")), 40},
		"an operator twice":          {update(field("$pullAll", "a"), field("$set", "b"), field("$pullAll", "c")), 9},
		"an operator without fields": {update(field("$set")), 9},
		"a part without a name":      {update(field("$unset", "waits.")), 56},
		"no name":                    {update(field("$set", "")), 56},
		"a part with a dollar":       {update(field("$set", "a.$b")), 52},
		"two kinds of projection":    {find(field("", "a").Value.(bson.D)[0], bson.E{Key: "b", Value: 0}), 31254},
		"a projection of a part":     {find(bson.E{Key: "a", Value: 1}, bson.E{Key: "a.b", Value: 1}), 31249},
	} {
		reply, _ := docdb.New().Do(numbered(t, 0, c.command), time.Unix(1, 0), false)
		assert.Contains(t, reply, bson.E{Key: "code", Value: c.code}, what)
	}
}

func TestAProjectionOfAPartKeepsNothingElse(t *testing.T) {
	db, now := docdb.New(), time.Unix(1, 0)
	db.Do(numbered(t, 0, upsert("k", bson.D{{Key: "a.b", Value: 1}, {Key: "a.c", Value: 2}, {Key: "d", Value: 3}})), now, false)
	reply, _ := db.Do(numbered(t, 0, bson.D{{Key: "find", Value: "c"}, {Key: "projection", Value: bson.D{{Key: "a.b", Value: 1}}}}), now, false)
	want := bson.A{bson.D{{Key: "_id", Value: "k"}, {Key: "a", Value: bson.D{{Key: "b", Value: int32(1)}}}}}
	assert.Equal(t, want, reply[0].Value.(bson.D)[0].Value)
}

// A router before MongoDB 7.1 sends a write to one document nowhere unless it names the shard key.
func TestWhatMayBeAboutManyShards(t *testing.T) {
	of := bson.D{{Key: "state", Value: "ready"}}
	for what, c := range map[string]struct {
		command bson.D
		many    bool
	}{
		"a find":        {bson.D{{Key: "find", Value: "c"}, {Key: "filter", Value: of}}, true},
		"one update":    {bson.D{{Key: "findAndModify", Value: "c"}, {Key: "query", Value: of}}, false},
		"an update":     {bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: of}}}}}, false},
		"of all":        {bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: of}, {Key: "multi", Value: true}}}}}, true},
		"a removal":     {bson.D{{Key: "delete", Value: "c"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: of}, {Key: "limit", Value: 1}}}}}, false},
		"the same, all": {bson.D{{Key: "delete", Value: "c"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: of}, {Key: "limit", Value: 0}}}}}, true},
	} {
		assert.Equal(t, c.many, numbered(t, 0, c.command).Many(), what)
	}
}
