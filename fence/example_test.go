package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/fence"
)

// report stores a total, unless a newer holder of the lock has done so. It is what
// the example shows, here as a function that a test can run on a server.
func report(ctx context.Context, reports *mongo.Collection, token int64, total int) error {
	_, err := fence.UpdateByID(ctx, reports, token, "today",
		bson.D{{Key: "$set", Value: bson.D{{Key: "total", Value: total}}}}, fence.Upsert())
	if fenced, ok := errors.AsType[*fence.Error](err); ok {
		return fmt.Errorf("not stored, %d came first: %w", fenced.Newer, err)
	}
	return err
}

// The token comes from a lease: lease.Token().
func ExampleUpdateByID() { //nolint:testableexamples // needs a server; see TestTheExampleDoesWhatItSays
	var (
		ctx     context.Context
		reports *mongo.Collection
		token   int64
	)
	_, err := fence.UpdateByID(ctx, reports, token, "today",
		bson.D{{Key: "$set", Value: bson.D{{Key: "total", Value: 42}}}}, fence.Upsert())
	if errors.Is(err, fence.ErrFenced) {
		return // somebody with a newer token has written: stop
	}
}

func ExampleUpdateOne() { //nolint:testableexamples // needs a server; see TestTheExampleDoesWhatItSays
	var (
		ctx   context.Context
		jobs  *mongo.Collection
		token int64
	)
	result, err := fence.UpdateOne(ctx, jobs, token,
		bson.M{"_id": "import", "state": "running"},
		bson.M{"$set": bson.M{"state": "done"}})
	switch {
	case errors.Is(err, fence.ErrFenced):
		fmt.Println("another holder took over")
	case err != nil:
		fmt.Println("it may have been stored or not:", err)
	case result.MatchedCount == 0:
		fmt.Println("there is no such job")
	}
}

func TestTheExampleDoesWhatItSays(t *testing.T) {
	reports, _ := collection(t, server(t))
	if err := report(t.Context(), reports, 8, 42); err != nil {
		t.Fatal(err)
	}
	err := report(t.Context(), reports, 7, 41)
	if !errors.Is(err, fence.ErrFenced) || err.Error() != "not stored, 8 came first: fence: token 7 is outdated: 8 has written" {
		t.Errorf("got %v", err)
	}
}
