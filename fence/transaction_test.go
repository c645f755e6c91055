package fence_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/fence"
)

// within is a context in a new transaction, which the test's end aborts.
func within(t *testing.T, coll *mongo.Collection) (context.Context, *mongo.Session) {
	t.Helper()
	session, err := coll.Database().Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.EndSession(context.Background()) })
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	return mongo.NewSessionContext(t.Context(), session), session
}

func TestAWriteIsPartOfTheCallersTransaction(t *testing.T) {
	coll, _ := collection(t, server(t, "transactions"))
	put(t, coll, d("_id", "x", "_fence", int64(5)))
	ctx, session := within(t, coll)
	_, err := fence.UpdateOne(ctx, coll, 4, byX, set("v", 1))
	refused(t, err, 4, 5)
	if _, err := fence.UpdateOne(ctx, coll, 6, byX, set("v", 2)); err != nil {
		t.Fatalf("after a refusal: %v", err)
	}
	if doc := get(t, coll); doc["v"] != nil || doc["_fence"] != int64(5) {
		t.Errorf("seen from outside: %v", doc)
	}
	if err := session.AbortTransaction(t.Context()); err != nil {
		t.Fatal(err)
	}
	if doc := get(t, coll); doc["v"] != nil || doc["_fence"] != int64(5) {
		t.Errorf("after the abort: %v", doc)
	}
}

// The driver's error comes through with its labels: WithTransaction runs it again.
func TestATransactionOlderThanTheNewerTokensWriteIsRunAgainAndRefused(t *testing.T) {
	coll, _ := collection(t, server(t, "transactions"))
	put(t, coll, byX)
	put(t, coll, d("_id", "other"))
	session, err := coll.Database().Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.Background())
	runs := 0
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		runs++
		if err := coll.FindOne(ctx, d("_id", "other")).Err(); err != nil { // from here on it sees what there was
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
	if runs != 2 {
		t.Errorf("run %d times: the test shows nothing of a conflict", runs)
	}
	if doc := get(t, coll); doc["v"] != "fresh" || doc["_fence"] != int64(8) {
		t.Errorf("got %v", doc)
	}
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
			if err := write(ctx); !mongo.IsDuplicateKeyError(err) || errors.Is(err, fence.ErrFenced) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What the package comment tells those to do who write to many documents.
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
	if err := writeAll(8); err != nil {
		t.Fatal(err)
	}
	refused(t, writeAll(7), 7, 8)
	if n, err := all.CountDocuments(t.Context(), d("by", 8)); n != 3 || err != nil {
		t.Errorf("%d of 3 are as the newer one left them (%v)", n, err)
	}
}
