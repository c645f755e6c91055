package doclock

import (
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestAKeyLeadsBackToItsDocument(t *testing.T) {
	id := bson.NewObjectID()
	for want, filter := range map[string]any{
		`{"_id":"order-17"}`:                             ID("order-17"),
		`{"_id":{"$oid":"` + id.Hex() + `"}}`:            ID(id),
		`{"_id":{"$numberInt":"1"}}`:                     ID(int32(1)),
		`{"_id":{"$numberLong":"1"}}`:                    ID(int64(1)),
		`{"_id":{"$numberDouble":"1.0"}}`:                ID(1.0),
		`{"_id":{"a":"x","b":"y"}}`:                      ID(bson.D{{Key: "a", Value: "x"}, {Key: "b", Value: "y"}}),
		`{"_id":"a\u0000\"b"}`:                           ID("a\x00\"b"),
		`{"_id":"x","key":"17","type":"order"}`:          bson.M{"type": "order", "key": "17", "_id": "x"},
		`{"a.b":true,"c":{"$date":{"$numberLong":"7"}}}`: bson.D{{Key: "c", Value: time.UnixMilli(7)}, {Key: "a.b", Value: true}},
	} {
		key, fields, err := keyOf(filter)
		if err != nil || key != want {
			t.Errorf("%v: the key is %s, %v, want %s", filter, key, err, want)
			continue
		}
		back, err := filterOf(key)
		if err != nil {
			t.Error(err)
			continue
		}
		a, _ := bson.Marshal(fields)
		b, _ := bson.Marshal(back)
		if !slices.Equal(a, b) {
			t.Errorf("%s leads back to %v, not %v", key, back, fields)
		}
	}
}

func TestTheIndexOfAClaimHasEqualityFirstAndTheOrderNext(t *testing.T) {
	s := &docStore{field: "lock"}
	for want, in := range map[string]struct{ filter, sort any }{
		"doclock_state_lock.done_created_lock.readyAt_lock.expireAt": {
			bson.D{{Key: "state", Value: "new"}}, bson.D{{Key: "created", Value: 1}}},
		"doclock_state_lock.done_urgency_desc_created_due_lock.readyAt_lock.expireAt": {
			bson.D{{Key: "due", Value: bson.M{"$lte": 7}}, {Key: "state", Value: "new"}},
			bson.D{{Key: "urgency", Value: -1}, {Key: "created", Value: 1}}},
		"doclock_lock.done_lock.readyAt_lock.expireAt": {bson.D{}, nil},
	} {
		keys, err := s.claimIndex(in.filter, in.sort)
		if err != nil || indexName(keys) != want {
			t.Errorf("%v by %v: %s, %v", in.filter, in.sort, indexName(keys), err)
		}
	}
	if _, err := s.claimIndex(bson.D{}, bson.D{{Key: "a", Value: "up"}}); err == nil {
		t.Error("a sort by a word is accepted")
	}
}

// A process that misses nothing keeps the order; one that does draws from further in,
// and comes back when it no longer does.
func TestAPoolSpreadsAsFarAsItMisses(t *testing.T) {
	p := newPool(nil, nil, nil)
	fill := func() {
		p.ids = nil
		for i := range window {
			kind, value, _ := bson.MarshalValue(int32(i))
			p.ids = append(p.ids, bson.RawValue{Type: kind, Value: value})
		}
		p.seen, p.tries, p.misses = time.Now(), 0, 0
	}
	draw := func(missed bool) int32 {
		t.Helper()
		id, ok := p.pick()
		if !ok {
			fill()
			id, _ = p.pick()
		}
		p.done(id, missed)
		return id.Int32()
	}
	fill()
	for want := range int32(50) {
		if got := draw(false); got != want {
			t.Fatalf("drew %d, want %d: nobody else is about", got, want)
		}
	}
	for range 6 {
		draw(true)
	}
	if p.reach != window {
		t.Errorf("after six misses it reaches %d", p.reach)
	}
	for range 1000 {
		draw(false)
	}
	if p.reach != 1 {
		t.Errorf("after a thousand hits it reaches %d", p.reach)
	}
}

func TestALookIsWornOutByAgeAndByMisses(t *testing.T) {
	p := newPool(nil, nil, nil)
	p.seen, p.tries = time.Now(), 32
	if p.misses = 3; p.stale() {
		t.Error("stale after 3 misses of 32")
	}
	if p.misses = 4; !p.stale() {
		t.Error("good after 4 misses of 32")
	}
	p.misses, p.seen = 0, time.Now().Add(-2*windowAge)
	if !p.stale() {
		t.Error("good though old")
	}
}
