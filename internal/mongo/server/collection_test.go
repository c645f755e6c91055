package server

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestAnOrBesideAnIDGoesIntoAnAnd(t *testing.T) {
	id, rev := bson.E{Key: "_id", Value: "k"}, bson.E{Key: "rev", Value: 1}
	either := bson.E{Key: "$or", Value: bson.A{bson.D{rev}}}
	and := func(all ...any) bson.E { return bson.E{Key: "$and", Value: bson.A(all)} }
	for _, test := range []struct{ given, want bson.D }{
		{bson.D{id, rev}, bson.D{id, rev}},
		{bson.D{either, rev}, bson.D{either, rev}},
		{bson.D{id, either, rev}, bson.D{id, and(bson.D{either}), rev}},
		{bson.D{either, id}, bson.D{and(bson.D{either}), id}},
		{bson.D{id, either, and(bson.D{rev})}, bson.D{id, and(bson.D{rev}, bson.D{either})}},
		{bson.D{and(bson.D{rev}), id, either}, bson.D{and(bson.D{rev}, bson.D{either}), id}},
	} {
		before := append(bson.D(nil), test.given...)
		assert.Equal(t, test.want, ByID(test.given))
		assert.Equal(t, before, test.given, "the caller's filter is as it was")
	}
}
