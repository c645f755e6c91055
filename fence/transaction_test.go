package fence_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/fence"
)

// within is a context in a new transaction, which the test's end aborts.
func within(t *testing.T, coll *mongo.Collection) (context.Context, *mongo.Session) {
	t.Helper()
	session, err := coll.Database().Client().StartSession()
	require.NoError(t, err)
	t.Cleanup(func() { session.EndSession(context.Background()) })
	require.NoError(t, session.StartTransaction())
	return mongo.NewSessionContext(t.Context(), session), session
}

func TestAWriteIsPartOfTheCallersTransaction(t *testing.T) {
	coll, _ := collection(t, server(t, "transactions"))
	put(t, coll, d("_id", "x", "_fence", int64(5)))
	ctx, session := within(t, coll)
	_, err := fence.UpdateOne(ctx, coll, 4, byX, set("v", 1))
	refused(t, err, 4, 5)
	_, err = fence.UpdateOne(ctx, coll, 6, byX, set("v", 2))
	require.NoError(t, err, "after a refusal")
	holds(t, coll, bson.M{"v": nil, "_fence": int64(5)}) // seen from outside
	require.NoError(t, session.AbortTransaction(t.Context()))
	holds(t, coll, bson.M{"v": nil, "_fence": int64(5)})
}

// The driver's error keeps its labels, so WithTransaction runs the transaction again.
func TestATransactionOlderThanTheNewerTokensWriteIsRunAgainAndRefused(t *testing.T) {
	coll, _ := collection(t, server(t, "transactions"))
	put(t, coll, byX)
	put(t, coll, d("_id", "other"))
	session, err := coll.Database().Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	runs := 0
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		runs++
		if err := coll.FindOne(ctx, d("_id", "other")).Err(); err != nil { // its snapshot is taken here
			return nil, err
		}
		if runs == 1 {
			if _, err := fence.UpdateOne(t.Context(), coll, 8, byX, set("v", "fresh")); err != nil {
				return nil, err
			}
		}
		return fence.UpdateOne(ctx, coll, 7, byX, set("v", "stale"))
	})
	refused(t, err, 7, 8)
	assert.Equal(t, 2, runs, "without a conflict the test shows nothing")
	holds(t, coll, bson.M{"v": "fresh", "_fence": int64(8)})
}

func TestADuplicateKeyInATransactionIsReportedAsSuch(t *testing.T) {
	coll, _ := collection(t, server(t, "transactions"))
	put(t, coll, d("_id", "x", "_fence", int64(5)))
	for name, write := range map[string]func(ctx context.Context) error{
		"InsertOne": func(ctx context.Context) error {
			_, err := fence.InsertOne(ctx, coll, 4, byX)
			return err
		},
		"Upsert": func(ctx context.Context) error {
			_, err := fence.UpdateByID(ctx, coll, 4, "x", set("v", 1), fence.Upsert())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _ := within(t, coll)
			isDuplicate(t, write(ctx))
		})
	}
}

// To the server, a write that changes nothing is none: nothing in the transaction would conflict with a newer token's write.
func TestAWriteThatChangesNothingTakesTheDocumentForItsTransaction(t *testing.T) {
	uri := server(t, "transactions")
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			coll, _ := collection(t, uri)
			skipUnlessSupported(t, name)
			put(t, coll, byX)
			_, err := write(t.Context(), coll, 7, 1)
			require.NoError(t, err)
			for _, opts := range [][]fence.UpsertOption{nil, {fence.Upsert()}} {
				stale, session := within(t, coll)
				result, err := write(stale, coll, 7, 1, opts...)
				require.NoError(t, err)
				assert.EqualValues(t, 1, result.MatchedCount)
				newer, _ := within(t, coll)
				_, err = write(newer, coll, 8, 1)
				assert.Error(t, err, "a newer token has written before the commit of an older one")
				require.NoError(t, session.CommitTransaction(t.Context()))
				holds(t, coll, bson.M{"_fence": int64(7)})
			}
		})
	}
}

// The package comment tells writers of many documents to do this.
func TestAFencedWriteFirstFencesItsWholeTransaction(t *testing.T) {
	coll, _ := collection(t, server(t, "transactions"))
	put(t, coll, byX)
	all := coll.Database().Collection("many")
	for i := range 3 {
		put(t, all, d("_id", i))
	}
	writeAll := func(token int64) error {
		session, err := coll.Database().Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(context.Background())
		_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
			if _, err := fence.UpdateOne(ctx, coll, token, byX, set("by", token)); err != nil {
				return nil, err
			}
			return all.UpdateMany(ctx, bson.D{}, set("by", token))
		})
		return err
	}
	require.NoError(t, writeAll(8))
	refused(t, writeAll(7), 7, 8)
	n, err := all.CountDocuments(t.Context(), d("by", 8))
	require.NoError(t, err)
	assert.EqualValues(t, 3, n, "documents as the newer token left them")
}
