package fence_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/fence"
)

func raw(t *testing.T, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	require.NoError(t, err)
	return b
}

// Types of a caller.
type (
	ownD     bson.D
	ownMap   map[string]string
	ownBytes []byte
	key      struct {
		ID string `bson:"_id"`
	}
	selfMade struct{ v any }
)

func (s *selfMade) MarshalBSON() ([]byte, error) { return bson.Marshal(s.v) }

func TestFiltersOfEveryForm(t *testing.T) {
	coll, _ := collection(t, server(t))
	put(t, coll, d("_id", "x", "a", 1))
	put(t, coll, d("_id", "y", "a", 2))
	for name, filter := range map[string]any{
		"bson.D":           byX,
		"bson.M":           bson.M{"_id": "x"},
		"map":              map[string]any{"_id": "x"},
		"own map":          ownMap{"_id": "x"},
		"own elements":     ownD(byX),
		"struct":           key{"x"},
		"pointer":          &key{"x"},
		"bson.Raw":         raw(t, byX),
		"bytes":            []byte(raw(t, byX)),
		"own bytes":        ownBytes(raw(t, byX)),
		"Marshaler":        &selfMade{byX},
		"$or":              d("$or", bson.A{d("_id", "x"), d("_id", "z")}),
		"$and, $or":        d("$and", bson.A{d("_id", "x")}, "$or", bson.A{d("a", 1), d("a", 7)}),
		"on the fence too": d("_id", "x", "_fence", d("$gte", 0)),
		"$expr":            d("_id", "x", "$expr", d("$eq", bson.A{"$a", 1})),
	} {
		t.Run(name, func(t *testing.T) {
			skipUnlessSupported(t, name)
			_, err := fence.UpdateOne(t.Context(), coll, 5, byX, d("$unset", d("by", 1)))
			require.NoError(t, err)
			result, err := fence.UpdateOne(t.Context(), coll, 5, filter, set("by", name))
			require.NoError(t, err)
			require.EqualValues(t, 1, result.MatchedCount)
			holds(t, coll, bson.M{"by": name})
			_, err = fence.UpdateOne(t.Context(), coll, 4, filter, set("by", "older"))
			refused(t, err, 4, 5)
		})
	}
}

func TestOneOfSeveralDocumentsThatIsNotFencedOffIsUpdated(t *testing.T) {
	coll, _ := collection(t, server(t))
	put(t, coll, d("_id", "x", "_fence", int64(5)))
	put(t, coll, d("_id", "y"))
	result, err := fence.UpdateOne(t.Context(), coll, 4, bson.D{}, set("by", "any"))
	require.NoError(t, err)
	assert.EqualValues(t, 1, result.MatchedCount)
	_, err = fence.UpdateOne(t.Context(), coll, 3, bson.D{}, set("by", "any"))
	assert.ErrorIs(t, err, fence.ErrFenced, "both are fenced off now")
}

func TestUpdatesOfEveryForm(t *testing.T) {
	type fields struct{ V int }
	type setter struct {
		Set fields `bson:"$set"`
	}
	coll, _ := collection(t, server(t))
	put(t, coll, byX)
	one := d("v", 1)
	for name, update := range map[string]any{
		"bson.D":                      d("$set", one),
		"bson.M":                      bson.M{"$set": bson.M{"v": 1}},
		"maps of maps":                map[string]map[string]int{"$set": {"v": 1}},
		"own elements":                ownD{{Key: "$set", Value: ownD(one)}},
		"struct":                      setter{fields{1}},
		"pointer":                     &setter{fields{1}},
		"struct in $set":              d("$set", fields{1}),
		"bson.Raw":                    raw(t, d("$set", one)),
		"bytes":                       []byte(raw(t, d("$set", one))),
		"Marshaler":                   &selfMade{d("$set", one)},
		"no $set":                     d("$inc", one),
		"$set and $max":               d("$set", one, "$max", d("m", 1)),
		"$set and $max, raw":          raw(t, d("$set", one, "$max", d("m", 1))),
		"$set and $max, map":          bson.M{"$set": fields{1}, "$max": bson.M{"m": 1}},
		"$rename of others":           d("$set", one, "$rename", d("m", "n")),
		"a name alike":                d("$set", one, "$inc", d("_fenced", 1)),
		"mongo.Pipeline":              mongo.Pipeline{d("$set", one)},
		"pipeline, bson.A":            bson.A{d("$set", one)},
		"pipeline, []bson.M":          []bson.M{{"$set": one}},
		"pipeline, []any":             []any{d("$set", one), bson.M{"$unset": "m"}},
		"pipeline, $replaceWith":      bson.A{d("$replaceWith", d("_id", "$_id", "v", 1))},
		"pipeline, $project drops it": bson.A{d("$set", one), d("$project", d("v", 1))},
		"pipeline, []bson.Raw":        []bson.Raw{raw(t, d("$set", one))},
	} {
		t.Run(name, func(t *testing.T) {
			skipUnlessSupported(t, name)
			_, err := coll.ReplaceOne(t.Context(), byX, bson.D{})
			require.NoError(t, err)
			_, err = fence.UpdateOne(t.Context(), coll, 5, byX, update)
			require.NoError(t, err)
			holds(t, coll, bson.M{"v": int32(1), "_fence": int64(5)})
			_, err = fence.UpdateOne(t.Context(), coll, 4, byX, update)
			refused(t, err, 4, 5)
		})
	}
}

func TestReplacementsOfEveryForm(t *testing.T) {
	type inner struct{ W int }
	type thing struct {
		V     int
		Inner inner  `bson:",inline"`
		Empty string `bson:",omitempty"`
	}
	coll, _ := collection(t, server(t))
	put(t, coll, byX)
	for name, doc := range map[string]any{
		"bson.D":    d("v", 1, "w", 2),
		"bson.M":    bson.M{"v": 1, "w": 2},
		"map":       map[string]int32{"v": 1, "w": 2},
		"struct":    thing{V: 1, Inner: inner{2}},
		"pointer":   &thing{V: 1, Inner: inner{2}},
		"bson.Raw":  raw(t, d("v", 1, "w", 2)),
		"Marshaler": &selfMade{d("v", 1, "w", 2)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fence.ReplaceOne(t.Context(), coll, 5, byX, doc)
			require.NoError(t, err)
			assert.Equal(t, bson.M{"_id": "x", "v": int32(1), "w": int32(2), "_fence": int64(5)}, get(t, coll))
		})
	}
}

// A client's registry says how the caller's values are encoded, also in the parts of a
// write that this package takes apart.
func TestTheClientsRegistryIsHonoured(t *testing.T) {
	type colour [3]byte
	type thing struct{ C colour }
	registry := bson.NewRegistry()
	registry.RegisterTypeEncoder(reflect.TypeFor[colour](), bson.ValueEncoderFunc(
		func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error { return w.WriteString("red") }))
	coll, _ := collection(t, server(t), options.Client().SetRegistry(registry))
	red := colour{255, 0, 0}
	for name, write := range map[string]func() error{
		"filter": func() error {
			_, err := fence.UpdateOne(t.Context(), coll, 1, thing{red}, set("v", 1))
			return err
		},
		"update": func() error {
			_, err := fence.UpdateOne(t.Context(), coll, 1, byX, set("c", red))
			return err
		},
		"update with $set and $max": func() error {
			_, err := fence.UpdateOne(t.Context(), coll, 1, byX, d("$set", thing{red}, "$max", d("m", 1)))
			return err
		},
		"pipeline": func() error {
			_, err := fence.UpdateOne(t.Context(), coll, 1, byX, bson.A{set("c", red)})
			return err
		},
		"replacement": func() error {
			_, err := fence.ReplaceOne(t.Context(), coll, 1, byX, thing{red})
			return err
		},
		"replacement by a map": func() error {
			_, err := fence.ReplaceOne(t.Context(), coll, 1, byX, map[string]colour{"c": red})
			return err
		},
		"insert": func() error {
			if _, err := coll.DeleteMany(t.Context(), bson.D{}); err != nil {
				return err
			}
			_, err := fence.InsertOne(t.Context(), coll, 1, struct {
				ID    string `bson:"_id"`
				Thing thing  `bson:",inline"`
			}{"x", thing{red}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			skipUnlessSupported(t, name)
			remove(t, coll, bson.D{})
			doc := byX
			if name == "filter" {
				doc = d("_id", "x", "c", "red")
			}
			put(t, coll, doc)
			require.NoError(t, write())
			holds(t, coll, bson.M{"c": "red", "_fence": int64(1)})
		})
	}
}
