package fence_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/fence"
)

func raw(t *testing.T, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Types of a caller's own.
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
			wantsOf(t, name)
			if _, err := fence.UpdateOne(t.Context(), coll, 5, byX, d("$unset", d("by", 1))); err != nil {
				t.Fatal(err)
			}
			result, err := fence.UpdateOne(t.Context(), coll, 5, filter, set("by", name))
			if err != nil || result.MatchedCount != 1 {
				t.Fatalf("%+v, %v", result, err)
			}
			if doc := get(t, coll); doc["by"] != name {
				t.Errorf("got %v", doc)
			}
			_, err = fence.UpdateOne(t.Context(), coll, 4, filter, set("by", "older"))
			refused(t, err, 4, 5)
		})
	}
	t.Run("several documents", func(t *testing.T) {
		result, err := fence.UpdateOne(t.Context(), coll, 4, bson.D{}, set("by", "any"))
		if err != nil || result.MatchedCount != 1 {
			t.Fatalf("the one that is not fenced off: %+v, %v", result, err)
		}
		_, err = fence.UpdateOne(t.Context(), coll, 3, bson.D{}, set("by", "any"))
		if !errors.Is(err, fence.ErrFenced) {
			t.Errorf("all are fenced off now: %v", err)
		}
	})
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
			wantsOf(t, name)
			if _, err := coll.ReplaceOne(t.Context(), byX, bson.D{}); err != nil {
				t.Fatal(err)
			}
			if _, err := fence.UpdateOne(t.Context(), coll, 5, byX, update); err != nil {
				t.Fatal(err)
			}
			if doc := get(t, coll); doc["v"] != int32(1) || doc["_fence"] != int64(5) {
				t.Errorf("got %v", doc)
			}
			_, err := fence.UpdateOne(t.Context(), coll, 4, byX, update)
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
			if _, err := fence.ReplaceOne(t.Context(), coll, 5, byX, doc); err != nil {
				t.Fatal(err)
			}
			want := bson.M{"_id": "x", "v": int32(1), "w": int32(2), "_fence": int64(5)}
			if doc := get(t, coll); !reflect.DeepEqual(doc, want) {
				t.Errorf("got %v", doc)
			}
		})
	}
}

// A client's registry says how the caller's values are encoded, in the parts of a
// write that this package has taken apart as well.
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
			wantsOf(t, name)
			if _, err := coll.DeleteMany(t.Context(), bson.D{}); err != nil {
				t.Fatal(err)
			}
			doc := byX
			if name == "filter" {
				doc = d("_id", "x", "c", "red")
			}
			put(t, coll, doc)
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if doc := get(t, coll); doc["c"] != "red" || doc["_fence"] != int64(1) {
				t.Errorf("got %v", doc)
			}
		})
	}
}

// Nothing of this reaches a server, so it needs none.
func TestBadInputIsNamedAndNothingIsSent(t *testing.T) {
	type both struct {
		Set bson.D `bson:"$set"`
		Max bson.D `bson:"$max"`
	}
	coll, count := collection(t, "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1")
	update := func(token int64, filter, update any, opts ...fence.Option) error {
		_, err := fence.UpdateOne(t.Context(), coll, token, filter, update, opts...)
		return err
	}
	replace := func(doc any, opts ...fence.Option) error {
		_, err := fence.ReplaceOne(t.Context(), coll, 1, byX, doc, opts...)
		return err
	}
	insert := func(doc any, opts ...fence.Option) error {
		_, err := fence.InsertOne(t.Context(), coll, 1, doc, opts...)
		return err
	}
	byID := func(id any) error {
		_, err := fence.UpdateByID(t.Context(), coll, 1, id, set("v", 1))
		return err
	}
	noCollection := func() error {
		_, err := fence.UpdateOne(t.Context(), nil, 1, byX, set("v", 1))
		return err
	}
	good := set("v", 1)
	refusals := []struct {
		err  error
		want string
	}{
		{noCollection(), "collection is nil"},
		{update(0, byX, good), "token 0"},
		{update(-5, byX, good), "token -5"},
		{update(1, nil, good), "filter"},
		{update(1, bson.M(nil), good), "filter"},
		{update(1, (*key)(nil), good), "filter"},
		{update(1, byX, nil), "update"},
		{update(1, byX, bson.D(nil)), "update"},
		{update(1, byX, bson.D{}), "empty"},
		{update(1, byX, bson.M{}), "empty"},
		{update(1, byX, bson.A{}), "empty"},
		{update(1, byX, mongo.Pipeline{}), "empty"},
		{update(1, byX, "text"), "update"},
		{update(1, byX, bson.Raw{1, 2, 3}), "update"},
		{update(1, byX, make(chan int)), "update"},
		{update(1, byX, d("v", 1)), "ReplaceOne"},
		{update(1, byX, d("$set", d("a", 1), "v", 1)), "ReplaceOne"},
		{update(1, byX, d("$set", 1)), "$set"},
		{update(1, byX, bson.A{"text"}), "stage 0"},
		{update(1, byX, bson.A{good, d("v", 1)}), "stage 1"},
		{update(1, byX, bson.A{d("$set", good, "$unset", "v")}), "stage 0"},
		{update(1, byX, both{d("a", 1), d("b", 1)}), "$max"},
		{update(1, byX, set("_fence", 2)), "touches"},
		{update(1, byX, set("_fence.x", 2)), "touches"},
		{update(1, byX, bson.M{"$unset": bson.M{"_fence": 1}}), "touches"},
		{update(1, byX, raw(t, d("$inc", d("_fence", 1)))), "touches"},
		{update(1, byX, d("$rename", d("_fence", "x"))), "touches"},
		{update(1, byX, d("$rename", d("x", "_fence"))), "touches"},
		{update(1, byX, raw(t, d("$rename", d("x", "_fence")))), "touches"},
		{update(1, byX, set("epoch", 2), fence.Field("epoch")), "touches"},
		{update(1, byX, mongo.Pipeline{set("_fence", 2)}), "touches"},
		{update(1, byX, bson.A{d("$addFields", d("_fence", 2))}), "touches"},
		{update(1, byX, bson.A{d("$unset", "_fence")}), "touches"},
		{update(1, byX, bson.A{d("$unset", []string{"a", "_fence"})}), "touches"},
		{update(1, byX, []bson.Raw{raw(t, d("$unset", bson.A{"_fence"}))}), "touches"},
		{update(1, byX, bson.A{d("$project", d("_fence", 0))}), "touches"},
		{update(1, byX, good, nil), "option"},
		{update(1, byX, good, fence.ReplaceOptions()), "UpdateOne"},
		{update(1, d("a", 1), good, fence.Upsert()), "_id"},
		{update(1, d("_id", d("$in", bson.A{"x"})), good, fence.Upsert()), "_id"},
		{update(1, d("_id", bson.Regex{Pattern: "x"}), good, fence.Upsert()), "_id"},
		{update(1, key{"x"}, good, fence.Upsert()), "key"},
		{update(1, bson.Raw{1}, good, fence.Upsert()), "filter"},
		{byID(nil), "fence: the id"},
		{replace(nil), "document"},
		{replace((*key)(nil)), "document"},
		{replace(7), "document"},
		{replace(d("_fence", 1)), "_fence"},
		{replace(struct {
			F int `bson:"_fence"`
		}{1}), "_fence"},
		{replace(d("v", 1), fence.UpdateOptions()), "ReplaceOne"},
		{replace(good), "$"},
		{insert(nil), "document"},
		{insert(bson.M{"_fence": 1}), "_fence"},
		{insert(d("v", 1), fence.Upsert()), "InsertOne"},
		{insert(d("v", 1), fence.UpdateOptions(options.UpdateOne())), "InsertOne"},
	}
	for _, name := range []string{"", "_id", "a.b", "$a", "a$", "a b", "a\x00", "a\"b", "a,omitempty", "a\xff", strings.Repeat("a", 129)} {
		refusals = append(refusals, struct {
			err  error
			want string
		}{update(1, byX, good, fence.Field(name)), "Field("})
	}
	for i, r := range refusals {
		if r.err == nil || !strings.Contains(r.err.Error(), r.want) || strings.Contains(r.err.Error(), "server selection") {
			t.Errorf("%d: got %v, want something about %s", i, r.err, r.want)
		}
	}
	if n := count.n.Load(); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}
