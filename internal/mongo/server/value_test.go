package server

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestAnUpdateHasEachOperatorOnce(t *testing.T) {
	u := Change{}.Set("a", 1).Unset("b").Set("c", 2).Unset("d", "e").Add("$inc")
	assert.Equal(t, Change{
		{Key: "$set", Value: bson.D{{Key: "a", Value: 1}, {Key: "c", Value: 2}}},
		{Key: "$unset", Value: bson.D{{Key: "b", Value: ""}, {Key: "d", Value: ""}, {Key: "e", Value: ""}}},
	}, u)
}
