package faultproxy_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/faultproxy"
)

// A stage is a server, a proxy before it and a collection seen from both sides.
type stage struct {
	proxy  *faultproxy.Proxy
	things *mongo.Collection // through the proxy
	beside *mongo.Collection // past it
}

// retries and noRetries say whether the client retries its writes.
const (
	retries   = true
	noRetries = false
)

func newStage(t *testing.T, uri string, retryWrites bool) *stage {
	t.Helper()
	beside := connect(t, uri, false)
	proxy := faultproxy.New(t, uri)
	through := connect(t, proxy.URI(), retryWrites)
	name := "faultproxy_" + bson.NewObjectID().Hex()
	if os.Getenv("MONGODB_URI") == uri {
		t.Cleanup(func() {
			if err := beside.Database(name).Drop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	s := &stage{proxy, through.Database(name).Collection("things"), beside.Database(name).Collection("things")}
	if err := through.Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func connect(t *testing.T, uri string, retryWrites bool) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetRetryWrites(retryWrites).SetRetryReads(false).
		SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = client.Disconnect(ctx)
	})
	return client
}

func (s *stage) insert(ctx context.Context, id string) error {
	_, err := s.things.InsertOne(ctx, bson.D{{Key: "_id", Value: id}})
	return err
}

// applied reports whether the server has the document, asked past the proxy.
func (s *stage) applied(t *testing.T, id string) bool {
	t.Helper()
	err := s.beside.FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Err()
	if err != nil && err != mongo.ErrNoDocuments {
		t.Fatal(err)
	}
	return err == nil
}

// settle waits until the driver has got over the loss of its connections: while it
// has not, a pool that is being cleared takes commands down that the server applied.
func (s *stage) settle(t *testing.T) {
	t.Helper()
	for good, begin := 0, time.Now(); good < 3; {
		err := s.things.Database().Client().Ping(soon(t, time.Second), nil)
		if good++; err != nil {
			good = 0
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func await(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(10 * time.Second):
		t.Fatalf("not within 10 s: %s", what)
	}
}

func is(cmd bson.Raw, id string) bool {
	return cmd.Lookup("documents", "0", "_id").StringValue() == id
}
