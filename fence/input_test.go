package fence_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/fence"
)

// None of this reaches a server, so the test needs none.
func TestBadInputIsNamedAndNothingIsSent(t *testing.T) {
	type both struct {
		Set bson.D `bson:"$set"`
		Max bson.D `bson:"$max"`
	}
	coll, count := collection(t, "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1")
	update := func(token int64, filter, update any, opts ...fence.UpdateOption) error {
		_, err := fence.UpdateOne(t.Context(), coll, token, filter, update, opts...)
		return err
	}
	replace := func(doc any, opts ...fence.ReplaceOption) error {
		_, err := fence.ReplaceOne(t.Context(), coll, 1, byX, doc, opts...)
		return err
	}
	insert := func(doc any, opts ...fence.InsertOption) error {
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
	type refusal struct {
		err  error
		want string
	}
	refusals := []refusal{
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
		{update(1, byX, d("$set", []byte(raw(t, d("a", 1))))), "$set is a []uint8"},
		{update(1, byX, d("$set", ownBytes(raw(t, d("a", 1))), "$max", d("b", 1))), "$set is a fence_test.ownBytes"},
		{update(1, byX, d("$set", tagged{1})), "touches"},
		{update(1, byX, d("$set", &tagged{1}, "$max", d("b", 1))), "touches"},
		{replace(tagged{1}), "_fence"},
		{insert(&tagged{1}), "_fence"},
		{update(1, byX, mongo.Pipeline{set("_fence", 2)}), "touches"},
		{update(1, byX, bson.A{d("$addFields", d("_fence", 2))}), "touches"},
		{update(1, byX, bson.A{d("$unset", "_fence")}), "touches"},
		{update(1, byX, bson.A{d("$unset", []string{"a", "_fence"})}), "touches"},
		{update(1, byX, []bson.Raw{raw(t, d("$unset", bson.A{"_fence"}))}), "touches"},
		{update(1, byX, bson.A{d("$project", d("_fence", 0))}), "touches"},
		{update(1, byX, good, nil), "a nil option"},
		{update(1, d("a", 1), good, fence.Upsert()), "_id"},
		{update(1, d("_id", d("$in", bson.A{"x"})), good, fence.Upsert()), "_id"},
		{update(1, d("_id", bson.Regex{Pattern: "x"}), good, fence.Upsert()), "_id"},
		{update(1, key{"x"}, good, fence.Upsert()), "key"},
		{update(1, bson.Raw{1}, good, fence.Upsert()), "filter"},
		{update(1, byX, good, fence.Upsert(), fence.UpdateOptions(options.UpdateOne().SetCollation(&options.Collation{Locale: "en"}))), "collation"},
		{replace(map[label]int{"x": 1}), `"x" or "<x>"`},
		{byID(nil), "fence: the id"},
		{replace(nil), "document"},
		{replace((*key)(nil)), "document"},
		{replace(7), "document"},
		{replace(d("_fence", 1)), "_fence"},
		{replace(struct {
			F int `bson:"_fence"`
		}{1}), "_fence"},
		{replace(good), "$"},
		{insert(nil), "document"},
		{insert(bson.M{"_fence": 1}), "_fence"},
		{update(1, byX, good, fence.UpdateOptions(broken{})), "UpdateOptions: it is broken"},
	}
	for _, name := range []string{"", "_id", "a.b", "$a", "a$", "a b", "a\x00", "a\"b", "a,omitempty", "a\xff", strings.Repeat("a", 129)} {
		refusals = append(refusals, refusal{update(1, byX, good, fence.Field(name)), fmt.Sprintf("Field(%q): must be", name)})
	}
	for i, r := range refusals {
		assert.ErrorContains(t, r.err, r.want, "refusal %d", i)
		assert.NotContains(t, fmt.Sprint(r.err), "server selection", "refusal %d", i)
	}
	assert.Zero(t, count.n.Load(), "commands sent")
}

// A label is the key of a map that an option of the client changes (StringifyMapKeysWithFmt).
type label string

func (l label) String() string { return "<" + string(l) + ">" }

// tagged has a field that is the token's for a client with UseJSONStructTags.
type tagged struct {
	F int `json:"_fence"`
}

// broken is an option of the driver that fails.
type broken struct{}

func (broken) List() []func(*options.UpdateOneOptions) error {
	return []func(*options.UpdateOneOptions) error{func(*options.UpdateOneOptions) error { return errors.New("it is broken") }}
}

func TestAllBadArgumentsAreNamedAtOnce(t *testing.T) {
	_, err := fence.UpdateOne(t.Context(), nil, 0, byX, set("v", 1), nil, fence.Field(""))
	for _, want := range []string{"collection is nil", "token 0", "a nil option", `Field(""): must be`} {
		assert.ErrorContains(t, err, want)
	}
}

// The compiler refuses an option that a call does not have.
func TestAnOptionFitsNoCallButItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		option                  any
		update, replace, insert bool
	}{
		"Field":          {fence.Field("f"), true, true, true},
		"Upsert":         {fence.Upsert(), true, true, false},
		"UpdateOptions":  {fence.UpdateOptions(), true, false, false},
		"ReplaceOptions": {fence.ReplaceOptions(), false, true, false},
		"InsertOptions":  {fence.InsertOptions(), false, false, true},
	} {
		_, update := c.option.(fence.UpdateOption)
		_, replace := c.option.(fence.ReplaceOption)
		_, insert := c.option.(fence.InsertOption)
		assert.Equal(t, []bool{c.update, c.replace, c.insert}, []bool{update, replace, insert}, name)
	}
}

// The driver ignores a nil among its options.
func TestNilOptionsOfTheDriverAreIgnored(t *testing.T) {
	coll, _ := collection(t, server(t))
	put(t, coll, byX)
	_, err := fence.UpdateOne(t.Context(), coll, 1, byX, set("v", 1), fence.UpdateOptions(nil, (*options.UpdateOneOptionsBuilder)(nil)))
	require.NoError(t, err)
	_, err = fence.ReplaceOne(t.Context(), coll, 1, byX, d("v", 2), fence.ReplaceOptions(nil, (*options.ReplaceOptionsBuilder)(nil)))
	require.NoError(t, err)
	_, err = fence.InsertOne(t.Context(), coll, 1, d("_id", "y"), fence.InsertOptions(nil, (*options.InsertOneOptionsBuilder)(nil)))
	require.NoError(t, err)
}
