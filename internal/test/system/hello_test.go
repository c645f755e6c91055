package system

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

const withoutNumbers = "writes have no transaction numbers here"

func TestAClientSaysOnceThatItsWritesHaveNoNumbers(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	for name, c := range map[string]struct {
		options func(*options.ClientOptions)
		lines   int
	}{
		"a set":             {func(*options.ClientOptions) {}, 0},
		"retryWrites=false": {func(o *options.ClientOptions) { o.SetRetryWrites(false) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var book logBuffer
			coll := testserver.Collection(t, testserver.Client(t, c.options))
			client, err := mongolock.New(coll, mongolock.WithLogger(book.logger()), mongolock.WithoutIndex())
			require.NoError(t, err)
			for _, key := range []string{"a", "b"} {
				lease, err := client.TryAcquire(t.Context(), key)
				require.NoError(t, err)
				require.NoError(t, lease.Release())
			}
			require.NoError(t, client.Close())
			assert.Equal(t, c.lines, strings.Count(book.String(), withoutNumbers), "%s", book.String())
		})
	}
}

// Locks on documents log it as locks do.
func TestDocumentLocksSayItToo(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	var book logBuffer
	coll := testserver.Collection(t, testserver.Client(t, func(o *options.ClientOptions) { o.SetRetryWrites(false) }))
	_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "order-17"}})
	require.NoError(t, err)
	orders, err := doclock.New[bson.M](coll, doclock.WithLogger(book.logger()))
	require.NoError(t, err)
	doc, err := orders.Acquire(t.Context(), doclock.ID("order-17"))
	require.NoError(t, err)
	require.NoError(t, doc.Release())
	require.NoError(t, orders.Close())
	assert.Contains(t, book.String(), withoutNumbers)
}

// A client asks nothing of the deployment beside what its locks take.
func TestAClientSendsWhatItsLocksTakeAndNothingElse(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	var tap testserver.Tap
	coll := testserver.Collection(t, testserver.Client(t, tap.On))
	client, err := mongolock.New(coll, mongolock.WithoutIndex())
	require.NoError(t, err)
	_, err = client.Inspect(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, []string{"hello", "find"}, tap.TakeNames())
	for _, key := range []string{"a", "b"} {
		lease, err := client.TryAcquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, lease.Release())
	}
	require.NoError(t, client.Close())
	assert.Equal(t, []string{"listCollections", "findAndModify", "findAndModify", "findAndModify", "findAndModify"}, tap.TakeNames())
}
