package docdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// numbered is a command of a session.
func numbered(t *testing.T, number int64, body bson.D) docdb.Command {
	t.Helper()
	raw, err := bson.Marshal(append(body, bson.E{Key: "$db", Value: "d"}))
	require.NoError(t, err)
	c, err := docdb.Parse(raw)
	require.NoError(t, err)
	c.Session, c.Number = "s", number
	return c
}

func upsert(id string, set bson.D, filter ...bson.E) bson.D {
	return bson.D{
		{Key: "findAndModify", Value: "c"}, {Key: "query", Value: append(bson.D{{Key: "_id", Value: id}}, filter...)},
		{Key: "update", Value: bson.D{{Key: "$set", Value: set}}}, {Key: "new", Value: true}, {Key: "upsert", Value: true},
	}
}

func TestADocumentMovesToAnotherShardWithTheWritesOfItsSessions(t *testing.T) {
	from, to := docdb.New(), docdb.New()
	now := time.Date(2026, 1, 1, 0, 0, 50, 0, time.UTC)
	behind := now.Add(-50 * time.Second)
	claim := numbered(t, 1, upsert("k", bson.D{{Key: "owner", Value: "first"}}))
	first, _ := from.Do(claim, now, false)
	from.Move(to, "d.c", "k", now, behind)
	assert.Empty(t, from.Docs("d.c"))
	require.Len(t, to.Docs("d.c"), 1)
	assert.True(t, to.Last().After(from.Last()) || to.ClusterTime().After(from.Last()), "a write there comes after all that was written here")

	again, _ := to.Do(claim, behind, false)
	assert.Equal(t, first, again, "a retry is answered, and not applied again")
	newer, _ := to.Do(numbered(t, 2, upsert("k", bson.D{{Key: "owner", Value: "second"}})), behind, false)
	assert.Contains(t, newer, bson.E{Key: "ok", Value: 1.0})
	old, _ := to.Do(claim, behind, false)
	assert.Equal(t, int32(225), old[2].Value, "an older number is refused")
	to.Forget()
	old, _ = to.Do(claim, behind, false)
	assert.Equal(t, int32(225), old[2].Value, "also after a restart")
}

func TestThePartsOfACommandAreAnsweredAsOne(t *testing.T) {
	one, two := docdb.New(), docdb.New()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one.Do(numbered(t, 1, upsert("a", bson.D{{Key: "n", Value: 1}})), now, false)
	statement := func(id string, upsert bool) bson.D {
		return bson.D{{Key: "q", Value: bson.D{{Key: "_id", Value: id}}}, {Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 2}}}}}, {Key: "upsert", Value: upsert}}
	}
	whole := numbered(t, 2, bson.D{{Key: "update", Value: "c"}, {Key: "ordered", Value: false}, {Key: "updates", Value: bson.A{
		statement("b", true), statement("a", false), statement("c", false),
	}}})
	ids, named := whole.IDs()
	require.True(t, named)
	assert.Equal(t, []string{"b", "a", "c"}, ids)
	here, _ := one.Do(whole.Part(func(id string) bool { return id == "a" }), now, false)
	there, _ := two.Do(whole.Part(func(id string) bool { return id != "a" }), now, false)
	reply := docdb.Merged(whole, []bson.D{here, there})
	assert.Contains(t, reply, bson.E{Key: "n", Value: int32(2)})
	assert.Contains(t, reply, bson.E{Key: "nModified", Value: int32(1)})
	assert.Contains(t, reply, bson.E{Key: "upserted", Value: bson.A{bson.D{{Key: "index", Value: int32(0)}, {Key: "_id", Value: "b"}}}})
	again, _ := two.Do(whole.Part(func(id string) bool { return id != "a" }), now, false)
	assert.Equal(t, there[0], again[0], "the statements kept their numbers, by which a retry is known")

	failed := docdb.Failure(6, "network error")
	assert.Equal(t, failed, docdb.Merged(whole, []bson.D{here, failed}))
}

// A claim only inserts: its filter names the revision that it is about to write.
func TestAnUpsertThatNamesItsOwnRevisionOnlyInserts(t *testing.T) {
	db := docdb.New()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	claim := func(number int64, rev byte) int32 {
		id := bson.ObjectID{rev}
		reply, _ := db.Do(numbered(t, number, upsert("k", bson.D{{Key: "rev", Value: id}}, bson.E{Key: "mongolock", Value: 1}, bson.E{Key: "rev", Value: id})), now, false)
		for _, e := range reply {
			if e.Key == "code" {
				return e.Value.(int32)
			}
		}
		return 0
	}
	assert.Zero(t, claim(1, 1))
	assert.Equal(t, int32(11000), claim(2, 2), "another's document")
	assert.Zero(t, claim(3, 1), "its own")
}
