package doclock

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// set changes a field of a document by hand.
func set(t *testing.T, coll *mongo.Collection, id any, field string, value any) {
	t.Helper()
	_, err := coll.UpdateOne(t.Context(), ID(id), bson.M{"$set": bson.M{field: value}})
	require.NoError(t, err)
}

// A Go map is encoded in another order each time: one of five fields is equal by chance in
// one of 120 saves.
func TestASaveLeavesAnUnchangedMapAlone(t *testing.T) {
	type counted struct {
		ID     string         `bson:"_id"`
		Counts map[string]int `bson:"counts"`
		N      int            `bson:"n"`
	}
	coll := collection(t)
	locks := locksOn[counted](t, coll)
	for i := range 5 {
		id := fmt.Sprint(i)
		put(t, coll, counted{ID: id, Counts: map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}})
		doc := must(locks.Acquire(t.Context(), ID(id)))(t)
		set(t, coll, id, "counts.f", 6)
		set(t, coll, id, "counts.a", 10)
		doc.Value.N++
		require.NoError(t, doc.SaveAndRelease(t.Context()))
		raw := get(t, coll, id)
		assert.EqualValues(t, 6, raw.Lookup("counts", "f").AsInt64(), "set by somebody else")
		assert.EqualValues(t, 10, raw.Lookup("counts", "a").AsInt64(), "set by somebody else")
		assert.EqualValues(t, 1, raw.Lookup("n").AsInt64())
	}
}

func TestASaveWritesOnlyTheChangedFieldsOfAMap(t *testing.T) {
	type counted struct {
		ID     string                    `bson:"_id"`
		Counts map[string]map[string]int `bson:"counts"`
	}
	coll := collection(t)
	put(t, coll, counted{ID: "o", Counts: map[string]map[string]int{"x": {"a": 1, "b": 2}, "y": {"a": 1}, "z": {}}})
	doc := must(locksOn[counted](t, coll).Acquire(t.Context(), ID("o")))(t)
	set(t, coll, "o", "counts.x.theirs", 7)
	set(t, coll, "o", "counts.w", bson.M{"theirs": 8})
	doc.Value.Counts["x"]["a"] = 100
	delete(doc.Value.Counts["x"], "b")
	delete(doc.Value.Counts, "y")
	doc.Value.Counts["z"]["new"] = 3
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	var saved struct {
		Counts map[string]map[string]int `bson:"counts"`
	}
	require.NoError(t, coll.FindOne(t.Context(), ID("o")).Decode(&saved))
	assert.Equal(t, map[string]map[string]int{"x": {"a": 100, "theirs": 7}, "z": {"new": 3}, "w": {"theirs": 8}}, saved.Counts)
}

func TestASaveKeepsNestedFieldsThatTheTypeDoesNotHave(t *testing.T) {
	type customer struct {
		Name string `bson:"name"`
	}
	type sold struct {
		ID       string   `bson:"_id"`
		Customer customer `bson:"customer"`
	}
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: "o"}, {Key: "customer", Value: bson.D{{Key: "name", Value: "A"}, {Key: "email", Value: "a@example.org"}}}})
	doc := must(locksOn[sold](t, coll).Acquire(t.Context(), ID("o")))(t)
	doc.Value.Customer.Name = "B"
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	raw := get(t, coll, "o")
	assert.Equal(t, "B", raw.Lookup("customer", "name").StringValue())
	assert.Equal(t, "a@example.org", raw.Lookup("customer", "email").StringValue())
}

// changesOf is what a save of a value writes, if the document may have each of these.
func changesOf(t *testing.T, value bson.D, has ...bson.D) (sets bson.M, unsets []string) {
	t.Helper()
	var known saved
	for _, h := range has {
		raw, err := bson.Marshal(h)
		require.NoError(t, err)
		known = known.with(raw)
	}
	ch, _, err := codec[bson.D]{field: "lock"}.changes(asValue("o"), known, value)
	require.NoError(t, err)
	sets = bson.M{}
	for _, s := range ch.sets {
		require.NotContains(t, sets, s.Key, "set twice")
		sets[s.Key] = s.Value.(bson.RawValue).String()
	}
	return sets, ch.unsets
}

func TestTheChangesOfAValueAreItsChangedFieldsByTheirPaths(t *testing.T) {
	type doc = bson.D
	of := func(v any) doc { return doc{{Key: "f", Value: v}} }
	for name, c := range map[string]struct {
		has    []doc
		value  doc
		sets   bson.M
		unsets []string
	}{
		"nothing":                     {[]doc{of(doc{{Key: "a", Value: "1"}})}, of(doc{{Key: "a", Value: "1"}}), bson.M{}, nil},
		"another order is no change":  {[]doc{of(doc{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}})}, of(doc{{Key: "b", Value: "2"}, {Key: "a", Value: "1"}}), bson.M{}, nil},
		"a nested field":              {[]doc{of(doc{{Key: "a", Value: doc{{Key: "b", Value: "1"}}}})}, of(doc{{Key: "a", Value: doc{{Key: "b", Value: "2"}}}}), bson.M{"f.a.b": `"2"`}, nil},
		"a nested field that is gone": {[]doc{of(doc{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}})}, of(doc{{Key: "a", Value: "1"}}), bson.M{}, []string{"f.b"}},
		"a document in place of null": {[]doc{of(nil)}, of(doc{{Key: "a", Value: "1"}}), bson.M{"f": `{"a": "1"}`}, nil},
		"null in place of a document": {[]doc{of(doc{{Key: "a", Value: "1"}})}, of(nil), bson.M{"f": "null"}, nil},
		"an array is one value":       {[]doc{of(bson.A{"1", "2"})}, of(bson.A{"1", "3"}), bson.M{"f": `["1","3"]`}, nil},
		"maps in an array have no order": {[]doc{of(bson.A{doc{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}})},
			of(bson.A{doc{{Key: "b", Value: "2"}, {Key: "a", Value: "1"}}}), bson.M{}, nil},
		"a name that no path can have": {[]doc{of(doc{{Key: "a.b", Value: "1"}})}, of(doc{{Key: "a.b", Value: "2"}}), bson.M{"f": `{"a.b": "2"}`}, nil},
		"in doubt, what may differ":    {[]doc{of("1"), of("2")}, of("1"), bson.M{"f": `"1"`}, nil},
		"in doubt, what may be gone":   {[]doc{{}, of("2")}, doc{}, bson.M{}, []string{"f"}},
		"in doubt, nested": {[]doc{of(doc{{Key: "a", Value: "1"}, {Key: "b", Value: "1"}}), of(doc{{Key: "a", Value: "2"}, {Key: "b", Value: "1"}})},
			of(doc{{Key: "a", Value: "1"}, {Key: "b", Value: "1"}}), bson.M{"f.a": `"1"`}, nil},
		"in doubt of the type": {[]doc{of(doc{{Key: "a", Value: "1"}}), of("x")}, of(doc{{Key: "a", Value: "1"}}), bson.M{"f": `{"a": "1"}`}, nil},
		"nothing is known":     {nil, of(doc{{Key: "a", Value: "1"}}), bson.M{"f": `{"a": "1"}`}, nil},
	} {
		sets, unsets := changesOf(t, c.value, c.has...)
		assert.Equal(t, c.sets, sets, name)
		assert.Equal(t, c.unsets, unsets, name)
	}
}

func TestAfterManySavesOfUnknownOutcomeEveryFieldIsWritten(t *testing.T) {
	var has []bson.D
	for i := range maxSaved + 1 {
		has = append(has, bson.D{{Key: "same", Value: bson.D{{Key: "a", Value: "1"}}}, {Key: "n", Value: i}, {Key: fmt.Sprint("g", i), Value: 1}})
	}
	sets, unsets := changesOf(t, bson.D{{Key: "same", Value: bson.D{{Key: "a", Value: "1"}}}}, has...)
	assert.Equal(t, bson.M{"same": `{"a": "1"}`}, sets)
	assert.Len(t, unsets, maxSaved+2)
}

func TestManySavesInATransactionKeepOnlyWhatASaveMayHaveToRemove(t *testing.T) {
	var has saved
	for i := range 1000 {
		raw, err := bson.Marshal(bson.D{{Key: "n", Value: i}})
		require.NoError(t, err)
		has = has.with(raw)
	}
	assert.Len(t, has, maxSaved+1)
	raw, err := bson.Marshal(bson.D{{Key: "n", Value: 0}, {Key: "new", Value: 1}})
	require.NoError(t, err)
	assert.Len(t, has.with(raw), maxSaved+2, "it has another field")
}

func TestAnUnsetFieldIsZeroInItsOwnType(t *testing.T) {
	raw := func(v any) bson.RawValue {
		kind, value, err := bson.MarshalValue(v)
		require.NoError(t, err)
		return bson.RawValue{Type: kind, Value: value}
	}
	for _, v := range []any{bson.Null{}, "", 0, int64(0), 0.0, bson.Decimal128{}, must(bson.ParseDecimal128("0.00"))(t), bson.NilObjectID} {
		assert.True(t, isZero(raw(v)), "%T %v", v, v)
	}
	for _, v := range []any{"0", 1, 0.5, must(bson.ParseDecimal128("0.5"))(t), must(bson.ParseDecimal128("NaN"))(t), bson.NewObjectID(), false} {
		assert.False(t, isZero(raw(v)), "%T %v", v, v)
	}
}

func TestAValueMayHaveItsIDInAnotherTypeOfNumber(t *testing.T) {
	type numbered struct {
		ID int64 `bson:"_id"`
		N  int   `bson:"n"`
	}
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: int32(17)}, {Key: "n", Value: 1}})
	locks := locksOn[numbered](t, coll)
	doc := must(locks.Acquire(t.Context(), ID(17)))(t)
	doc.Value.N = 2
	require.NoError(t, doc.Save(t.Context()))
	doc.Value.N = 3
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	assert.EqualValues(t, 3, get(t, coll, 17).Lookup("n").AsInt64())
	assert.Equal(t, bson.TypeInt32, get(t, coll, 17).Lookup("_id").Type)

	made := must(locks.AcquireOrCreate(t.Context(), ID(int32(18)), numbered{ID: 18, N: 1}))(t)
	made.Value.N = 2
	require.NoError(t, made.SaveAndRelease(t.Context()))
	made = must(locks.Acquire(t.Context(), ID(18.0)))(t)
	made.Value.ID = 19
	assert.ErrorContains(t, made.Save(t.Context()), "cannot change")
}

func TestFieldsNamedAfterTheLockAreTheApplications(t *testing.T) {
	type mail struct {
		ID     string    `bson:"_id"`
		SendAt time.Time `bson:"send_at"`
		Stamp  string    `bson:"send_stamp"`
	}
	coll := collection(t)
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	put(t, coll, mail{ID: "o", SendAt: at, Stamp: "airmail"})
	locks := locksOn[mail](t, coll, Field("send"))
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	assert.Equal(t, mail{ID: "o", SendAt: at, Stamp: "airmail"}, doc.Value)
	doc.Value.SendAt = at.Add(time.Hour)
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	assert.Equal(t, at.Add(time.Hour).UnixMilli(), get(t, coll, "o").Lookup("send_at").DateTime())
}

func TestNumbersThatTheServerTakesForOneAreTheSame(t *testing.T) {
	decimal := func(s string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(s)
		require.NoError(t, err)
		return d
	}
	for _, all := range [][]any{
		{int32(17), int64(17), 17.0, decimal("17"), decimal("1.7E1"), decimal("17.00")},
		{int32(0), 0.0, math.Copysign(0, -1), decimal("-0"), decimal("0E+10")},
		{int64(1) << 40, float64(int64(1) << 40), decimal("1099511627776")},
		{0.5, decimal("0.5"), decimal("0.50")},
		{bson.D{{Key: "a", Value: int32(1)}}, bson.D{{Key: "a", Value: 1.0}}},
		{bson.A{int32(1), "x"}, bson.A{int64(1), "x"}},
		{decimal("0.1")}, {0.1}, {"17"}, {true}, {math.Inf(1)}, {math.NaN()}, {decimal("NaN")},
		{bson.D{{Key: "a", Value: 1}, {Key: "b", Value: 1}}}, {bson.D{{Key: "b", Value: 1}, {Key: "a", Value: 1}}},
	} {
		for _, v := range all {
			for _, w := range all {
				assert.True(t, same(asValue(v), asValue(w)), "%v (%T) and %v (%T)", v, v, w, w)
			}
		}
	}
	for _, two := range [][2]any{{17, 18}, {0.1, decimal("0.1")}, {17, "17"}, {math.MaxInt64, float64(math.MaxInt64)},
		{bson.D{{Key: "a", Value: 1}, {Key: "b", Value: 1}}, bson.D{{Key: "b", Value: 1}, {Key: "a", Value: 1}}}} {
		assert.False(t, same(asValue(two[0]), asValue(two[1])), "%v and %v", two[0], two[1])
	}
}
