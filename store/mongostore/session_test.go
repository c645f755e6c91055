package mongostore

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/store"
)

type callerSession interface{ ID() bson.Raw }

func TestALockAcquiredInATransactionIsGrantedOutsideIt(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "transactions")
	f := newFixture(t)
	client := f.store.base.Soft.Database().Client()
	data := testserver.Collection(t, testserver.Client(t))
	tapped := client.Database(data.Database().Name()).Collection(data.Name())
	if _, err := data.InsertOne(f.ctx(), bson.D{{Key: "_id", Value: "seed"}}); err != nil {
		t.Fatal(err)
	}
	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(f.ctx())
	ctx := mongo.NewSessionContext(f.ctx(), session)
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	if _, err := tapped.InsertOne(ctx, bson.D{{Key: "_id", Value: "in"}}); err != nil {
		t.Fatal(err)
	}
	free, held := exclusiveClaim("free", 30*time.Second), exclusiveClaim("held", 30*time.Second)
	f.acquire(f.another(), held)
	if _, err := f.store.Acquire(ctx, free); err != nil {
		t.Fatal(err)
	}
	if f.absent("free") {
		t.Error("granted, and nobody else sees it")
	}
	if _, err := f.store.Acquire(ctx, exclusiveClaim("held", time.Second)); !errors.Is(err, store.ErrHeld) {
		t.Error(err)
	}
	if _, err := tapped.InsertOne(ctx, bson.D{{Key: "_id", Value: "after"}}); err != nil {
		t.Errorf("the held key ended the caller's transaction: %v", err)
	}
	if err := session.AbortTransaction(ctx); err != nil {
		t.Fatal(err)
	}
	if f.absent("free") {
		t.Error("the aborted transaction freed the key")
	}
	if n, _ := data.CountDocuments(f.ctx(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "seed"}}}}); n != 0 {
		t.Errorf("%d documents of the aborted transaction", n)
	}
}

func contextWithin(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
