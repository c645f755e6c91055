package fence_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/fence"
)

// A write that matches nothing is followed by a read, whose filter needs the same variables.
func TestAFilterCanUseVariablesOfLet(t *testing.T) {
	coll, _ := collection(t, server(t, "expressions", "v50"))
	put(t, coll, d("_id", "x", "a", 1))
	filter := d("$expr", d("$eq", bson.A{"$a", "$$v"}))
	let := func(v int) fence.UpdateOption { return fence.UpdateOptions(options.UpdateOne().SetLet(d("v", v))) }
	result, err := fence.UpdateOne(t.Context(), coll, 5, filter, set("b", 1), let(1))
	require.NoError(t, err)
	assert.EqualValues(t, 1, result.MatchedCount)
	result, err = fence.UpdateOne(t.Context(), coll, 5, filter, set("b", 1), let(2))
	require.NoError(t, err, "a missing document is no error")
	assert.Zero(t, result.MatchedCount)
	_, err = fence.UpdateOne(t.Context(), coll, 4, filter, set("b", 1), let(1))
	refused(t, err, 4, 5)
}
