package doclock

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestAKeyLeadsBackToItsDocument(t *testing.T) {
	id := bson.NewObjectID()
	for want, filter := range map[string]bson.D{
		`{"_id":"order-17"}`:                                    ID("order-17"),
		`{"_id":{"$oid":"` + id.Hex() + `"}}`:                   ID(id),
		`{"_id":1}`:                                             ID(int32(1)),
		`{"_id":1099511627776}`:                                 ID(int64(1) << 40),
		`{"_id":1.5}`:                                           ID(1.5),
		`{"_id":1E+300}`:                                        ID(1e300),
		`{"_id":-9223372036854775808}`:                          ID(int64(math.MinInt64)),
		`{"_id":{"$numberDouble":"NaN"}}`:                       ID(math.NaN()),
		`{"_id":{"$date":{"$numberLong":"-1"}}}`:                ID(time.UnixMilli(-1)),
		`{"_id":{"a":"x","b":"y"}}`:                             ID(bson.D{{Key: "a", Value: "x"}, {Key: "b", Value: "y"}}),
		`{"_id":"a\u0000\"b"}`:                                  ID("a\x00\"b"),
		`{"a.b":true,"c":{"$date":"1970-01-01T00:00:00.007Z"}}`: {{Key: "c", Value: time.UnixMilli(7)}, {Key: "a.b", Value: true}},
		`{"key":"17","type":"order","version":3}`:               {{Key: "version", Value: int32(3)}, {Key: "type", Value: "order"}, {Key: "key", Value: "17"}},
	} {
		key, fields, err := keyOf(filter)
		require.NoError(t, err)
		assert.Equal(t, want, key)
		back, err := filterOf(key)
		require.NoError(t, err)
		a, _ := bson.Marshal(fields)
		b, _ := bson.Marshal(back)
		assert.Equal(t, a, b, "%s leads back to %v, not %v", key, back, fields)
	}
}

func TestAllNamesOfADocumentWithItsIDHaveOneKey(t *testing.T) {
	for want, filters := range map[string][]any{
		`{"_id":17}`:      {ID(17), ID(int64(17)), ID(17.0), bson.M{"_id": int32(17), "type": "order"}},
		`{"_id":"x"}`:     {ID("x"), bson.M{"type": "order", "key": "17", "_id": "x"}},
		`{"_id":{"a":1}}`: {ID(bson.D{{Key: "a", Value: 1.0}}), ID(bson.D{{Key: "a", Value: int64(1)}})},
	} {
		for _, filter := range filters {
			key, _, err := keyOf(filter)
			require.NoError(t, err)
			assert.Equal(t, want, key, "%v", filter)
		}
	}
}

func TestTheIndexOfAClaimHasEqualityFirstAndTheSortNext(t *testing.T) {
	s := &docStore{lock: "lock"}
	for want, in := range map[string]struct{ filter, sort any }{
		"doclock_state_lock.done_created_lock.readyAt_lock.expireAt": {
			bson.D{{Key: "state", Value: "new"}}, bson.D{{Key: "created", Value: 1}}},
		"doclock_state_lock.done_urgency_desc_created_due_lock.readyAt_lock.expireAt": {
			bson.D{{Key: "due", Value: bson.M{"$lte": 7}}, {Key: "state", Value: "new"}},
			bson.D{{Key: "urgency", Value: -1}, {Key: "created", Value: 1}}},
		"doclock_lock.done_lock.readyAt_lock.expireAt": {bson.D{}, nil},
	} {
		keys, err := s.claimIndex(in.filter, in.sort)
		require.NoError(t, err)
		assert.Equal(t, want, indexName(keys))
	}
	_, value, err := bson.MarshalValue(must(bson.ParseDecimal128("-1"))(t))
	require.NoError(t, err)
	assert.Equal(t, "doclock_a_desc", indexName(bson.D{{Key: "a", Value: bson.RawValue{Type: bson.TypeDecimal128, Value: value}}}))
	_, err = s.claimIndex(bson.D{}, bson.D{{Key: "a", Value: "up"}})
	assert.ErrorContains(t, err, "must be 1 or -1")
}
