package mongobase

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A claim's update, with every kind of value that commands of ours have.
func anUpdate(text string, number int) bson.D {
	return bson.D{
		{Key: "$set", Value: bson.D{
			{Key: "mode", Value: text},
			{Key: "limit", Value: number},
			{Key: "holders", Value: bson.D{{Key: "ID", Value: bson.D{{Key: "expireAt", Value: Date(time.Unix(int64(number), 0))}}}}},
			{Key: "rev", Value: bson.NewObjectID()},
			{Key: "released", Value: true},
			{Key: "none", Value: bson.D{}},
			{Key: "since", Value: time.Unix(int64(number), 123_456_789)},
			{Key: "under", Value: bson.A{int64(number), text, bson.A{}, bson.D{{Key: "a", Value: number}}}},
			{Key: text, Value: false},
		}},
		{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}},
	}
}

func sameAsTheDriver(t *testing.T, update bson.D) {
	t.Helper()
	want, err := bson.Marshal(update)
	require.NoError(t, err)
	assert.Equal(t, bson.Raw(want), encoded(update), "%v: what is sent, beside what the driver would send", update)
}

func TestAnUpdateIsEncodedAsTheDriverDoes(t *testing.T) {
	for _, text := range []string{"exclusive", "", "ключ", "a.b$", "\xff", strings.Repeat("x", 3000)} {
		for _, number := range []int{0, 1, -1, math.MaxInt32, math.MinInt32} {
			sameAsTheDriver(t, anUpdate(text, number))
		}
	}
	sameAsTheDriver(t, bson.D{{Key: "text", Value: "a\x00b"}})
	sameAsTheDriver(t, bson.D{})
}

func FuzzAnUpdateIsEncodedAsTheDriverDoes(f *testing.F) {
	f.Add("exclusive", int32(1))
	f.Fuzz(func(t *testing.T, text string, number int32) {
		if strings.IndexByte(text, 0) < 0 {
			sameAsTheDriver(t, anUpdate(text, int(number)))
		}
	})
}

func TestValuesOfOtherTypesAndFaultyOnesAreLeftToTheDriver(t *testing.T) {
	type word string
	for what, v := range map[string]any{
		"a large number":  math.MaxInt32 + 1,
		"in an array":     bson.A{1, bson.A{word("a")}},
		"a map":           bson.M{"a": 1},
		"a type of yours": word("a"),
		"nothing":         nil,
		"one of those, further in": bson.D{
			{Key: "first", Value: 1}, {Key: "then", Value: bson.D{{Key: "array", Value: bson.A{nil}}}},
		},
		"a key that ends early": bson.D{{Key: "a\x00b", Value: 1}},
	} {
		update := bson.D{{Key: "$set", Value: bson.D{{Key: "before", Value: 1}, {Key: "it", Value: v}}}}
		assert.IsType(t, bson.D{}, encoded(update), "%s is left to the driver", what)
	}
}
