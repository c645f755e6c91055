package fence_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
)

// inMemory runs a test on a collection of a server in memory, of a client with those options.
func inMemory(t *testing.T, of *options.BSONOptions, test func(t *testing.T, coll *mongo.Collection)) {
	synctest.Test(t, func(t *testing.T) {
		client := docset.New(0).Client(t, docset.None)
		test(t, client.Database("app", options.Database().SetBSONOptions(of)).Collection("things"))
	})
}

// stored returns the elements of a document, without those of the token and the _id.
func stored(t *testing.T, coll *mongo.Collection, id string) (all []string) {
	t.Helper()
	raw, err := coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
	require.NoError(t, err)
	elements, err := raw.Elements()
	require.NoError(t, err)
	for _, e := range elements {
		if e.Key() != "_fence" && e.Key() != "_id" {
			all = append(all, fmt.Sprintf("%s %s %x", e.Key(), e.Value().Type, e.Value().Value))
		}
	}
	return all
}

// sameAsDriver fails unless this package stores a document, and sets the same fields, as the driver's own calls do.
func sameAsDriver(t *testing.T, coll *mongo.Collection, doc any) {
	t.Helper()
	ctx := t.Context()
	put := func(id string) bson.D { return bson.D{{Key: "_id", Value: id}, {Key: "old", Value: 1}} }
	for _, id := range []string{"replaced", "replaced fenced", "set", "set fenced"} {
		_, err := coll.InsertOne(ctx, put(id))
		require.NoError(t, err)
	}
	_, err := coll.ReplaceOne(ctx, bson.D{{Key: "_id", Value: "replaced"}}, doc)
	_, fenced := fence.ReplaceOne(ctx, coll, 7, bson.D{{Key: "_id", Value: "replaced fenced"}}, doc)
	require.Equal(t, err == nil, fenced == nil, "%v; %v", err, fenced)
	assert.ElementsMatch(t, stored(t, coll, "replaced"), stored(t, coll, "replaced fenced"), "ReplaceOne")
	update := bson.D{{Key: "$set", Value: doc}, {Key: "$max", Value: bson.D{{Key: "most", Value: 9}}}}
	_, err = coll.UpdateByID(ctx, "set", update)
	_, fenced = fence.UpdateByID(ctx, coll, 7, "set fenced", update)
	if err == nil { // a $set of nothing is refused; with the token it is none
		require.NoError(t, fenced)
		assert.ElementsMatch(t, stored(t, coll, "set"), stored(t, coll, "set fenced"), "$set")
	}
	_, err = coll.DeleteMany(ctx, bson.D{})
	require.NoError(t, err)
}

func TestAnInlineMapIsStored(t *testing.T) {
	type order struct {
		ID    string         `bson:"_id"`
		Total int            `bson:"total"`
		More  map[string]any `bson:",inline"`
	}
	inMemory(t, nil, func(t *testing.T, coll *mongo.Collection) {
		want := order{"x", 5, map[string]any{"customer": "c-17"}}
		_, err := fence.InsertOne(t.Context(), coll, 7, &want)
		require.NoError(t, err)
		var got order
		require.NoError(t, coll.FindOne(t.Context(), byX).Decode(&got))
		assert.Equal(t, "c-17", got.More["customer"])
		delete(got.More, "_fence")
		assert.Equal(t, want, got)
	})
}

func TestAMapThatIsInlineByItsJSONTagAloneIsRefused(t *testing.T) {
	type order struct {
		More map[string]any `json:",inline"`
	}
	inMemory(t, nil, func(t *testing.T, coll *mongo.Collection) {
		_, err := fence.InsertOne(t.Context(), coll, 7, order{map[string]any{"a": 1}})
		assert.ErrorContains(t, err, "the field More of fence_test.order")
	})
}

func TestTheValuesOfAMapAreEncodedByTheRegistryOfTheClient(t *testing.T) {
	type cents int
	synctest.Test(t, func(t *testing.T) {
		of := bson.NewRegistry()
		of.RegisterTypeEncoder(reflect.TypeFor[cents](), bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error {
			return w.WriteString(fmt.Sprint(v.Int(), " ct"))
		}))
		client := docset.New(0).Client(t, docset.None)
		coll := client.Database("app", options.Database().SetRegistry(of)).Collection("things")
		for _, doc := range []any{map[int]cents{1: 5}, map[uint8][]cents{1: {5}}, map[string]cents{"a": 5}, bson.D{{Key: "a", Value: cents(5)}}, struct{ A cents }{5}} {
			sameAsDriver(t, coll, doc)
		}
	})
}

func TestAnUpdateHasItsOperatorsByJSONTags(t *testing.T) {
	type update struct {
		Set bson.D `json:"$set"`
	}
	inMemory(t, &options.BSONOptions{UseJSONStructTags: true}, func(t *testing.T, coll *mongo.Collection) {
		put(t, coll, byX)
		_, err := fence.UpdateByID(t.Context(), coll, 7, "x", update{bson.D{{Key: "v", Value: 1}}})
		require.NoError(t, err)
		assert.Len(t, stored(t, coll, "x"), 1)
	})
}

// Structs of any form, under any options, are stored as the driver stores them.
func TestStructsOfAnyFormAreStoredAsTheDriverStoresThem(t *testing.T) {
	for seed := range uint64(300) {
		draw := rand.New(rand.NewPCG(seed, 1))
		of := &options.BSONOptions{
			UseJSONStructTags: draw.IntN(2) == 0, IntMinSize: draw.IntN(2) == 0, NilMapAsEmpty: draw.IntN(2) == 0,
			NilSliceAsEmpty: draw.IntN(2) == 0, NilByteSliceAsEmpty: draw.IntN(2) == 0, OmitZeroStruct: draw.IntN(2) == 0,
			OmitEmpty: draw.IntN(2) == 0, StringifyMapKeysWithFmt: draw.IntN(2) == 0,
		}
		inMemory(t, of, func(t *testing.T, coll *mongo.Collection) {
			v := filled(draw, structType(draw, 0))
			doc := v.Interface()
			if draw.IntN(2) == 0 {
				doc = v.Addr().Interface()
			}
			sameAsDriver(t, coll, doc)
			if t.Failed() {
				t.Logf("seed %d: %s: %+v", seed, v.Type(), doc)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// structType draws a struct type, with nested ones and at most one inline map.
func structType(draw *rand.Rand, depth int) reflect.Type {
	var fields []reflect.StructField
	for i := range 1 + draw.IntN(5) {
		f := reflect.StructField{Name: "F" + strconv.Itoa(depth) + strconv.Itoa(i), Type: fieldType(draw, depth)}
		name, option := "", []string{"", ",omitempty", ",minsize"}[draw.IntN(3)]
		if draw.IntN(2) == 0 {
			name = fmt.Sprintf("n%d%d", depth, i)
		}
		kind := f.Type.Kind()
		if (kind == reflect.Struct || kind == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct) && draw.IntN(2) == 0 {
			name, option = "", ",inline"
		}
		if draw.IntN(4) > 0 {
			f.Tag = reflect.StructTag(fmt.Sprintf(`bson:"%s%s" json:"j%d%d"`, name, option, depth, i))
		} else if option != ",inline" {
			f.Tag = reflect.StructTag(fmt.Sprintf(`json:"j%d%d%s"`, depth, i, option))
		}
		fields = append(fields, f)
	}
	if draw.IntN(3) == 0 {
		fields = append(fields, reflect.StructField{Name: "More" + strconv.Itoa(depth), Type: reflect.TypeFor[map[string]int](), Tag: `bson:",inline"`})
	}
	return reflect.StructOf(fields)
}

func fieldType(draw *rand.Rand, depth int) reflect.Type {
	types := []reflect.Type{
		reflect.TypeFor[int](), reflect.TypeFor[int64](), reflect.TypeFor[string](), reflect.TypeFor[*string](), reflect.TypeFor[[]byte](),
		reflect.TypeFor[[]int](), reflect.TypeFor[map[string]string](), reflect.TypeFor[map[int]string](), reflect.TypeFor[any](), reflect.TypeFor[bson.D](),
	}
	if depth < 2 && draw.IntN(3) == 0 {
		nested := structType(draw, depth+1)
		if draw.IntN(2) == 0 {
			return reflect.PointerTo(nested)
		}
		return nested
	}
	return types[draw.IntN(len(types))]
}

// filled returns a value of a type, some of whose fields are zero.
func filled(draw *rand.Rand, t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	if t.Kind() != reflect.Struct && draw.IntN(3) == 0 {
		return v
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		v.SetInt(draw.Int64N(1 << 40))
	case reflect.String:
		v.SetString("s" + strconv.Itoa(draw.IntN(9)))
	case reflect.Pointer:
		p := reflect.New(t.Elem())
		p.Elem().Set(filled(draw, t.Elem()))
		v.Set(p)
	case reflect.Slice:
		if t == reflect.TypeFor[bson.D]() {
			v.Set(reflect.ValueOf(bson.D{{Key: "k", Value: draw.IntN(9)}}))
			break
		}
		for range draw.IntN(3) {
			v = reflect.Append(v, filled(draw, t.Elem()))
		}
	case reflect.Map:
		v = reflect.MakeMap(t)
		for i := range draw.IntN(2) { // of several, the order would be any
			key := reflect.ValueOf(i)
			if t.Key().Kind() == reflect.String {
				key = reflect.ValueOf("k" + strconv.Itoa(i))
			}
			v.SetMapIndex(key, filled(draw, t.Elem()))
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf(draw.IntN(9)))
	case reflect.Struct:
		for i := range t.NumField() {
			v.Field(i).Set(filled(draw, t.Field(i).Type))
		}
	}
	return v
}
