package mongostore

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/store"
)

type mongoSession interface{ ID() bson.Raw }

func mongoSessionContext(ctx context.Context, s *mongo.Session) context.Context {
	return mongo.NewSessionContext(ctx, s)
}

func TestALockAskedForInATransactionIsGrantedOutsideIt(t *testing.T) {
	t.Parallel()
	mongoNeeds(t, "transactions")
	b := mongoBenchFor(t)
	client := b.store.base.Soft.Database().Client()
	data := mongoColl(t, mongoClient(t))
	tapped := client.Database(data.Database().Name()).Collection(data.Name())
	if _, err := data.InsertOne(b.ctx(), bson.D{{Key: "_id", Value: "seed"}}); err != nil {
		t.Fatal(err)
	}
	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(b.ctx())
	ctx := mongo.NewSessionContext(b.ctx(), session)
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	if _, err := tapped.InsertOne(ctx, bson.D{{Key: "_id", Value: "in"}}); err != nil {
		t.Fatal(err)
	}
	free, held := mongoAsk("free", 30*time.Second), mongoAsk("held", 30*time.Second)
	b.acquire(b.another(), held)
	if _, err := b.store.Acquire(ctx, free); err != nil {
		t.Fatal(err)
	}
	if b.absent("free") {
		t.Error("granted, and nobody else sees it")
	}
	if _, err := b.store.Acquire(ctx, mongoAsk("held", time.Second)); !errors.Is(err, store.ErrHeld) {
		t.Error(err)
	}
	if _, err := tapped.InsertOne(ctx, bson.D{{Key: "_id", Value: "after"}}); err != nil {
		t.Errorf("the held key ended the caller's transaction: %v", err)
	}
	if err := session.AbortTransaction(ctx); err != nil {
		t.Fatal(err)
	}
	if b.absent("free") {
		t.Error("the aborted transaction freed the key")
	}
	if n, _ := data.CountDocuments(b.ctx(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "seed"}}}}); n != 0 {
		t.Errorf("%d documents of the aborted transaction", n)
	}
}

func contextWithin(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
