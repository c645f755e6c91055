package faultproxy_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// A setup is a proxy before a server, and one collection seen through it and past it.
type setup struct {
	proxy  *faultproxy.Proxy
	coll   *mongo.Collection // through the proxy
	direct *mongo.Collection // past the proxy
}

// retries and noRetries say whether the client retries its writes.
const (
	retries   = true
	noRetries = false
)

func newSetup(t *testing.T, uri string, retryWrites bool) *setup {
	t.Helper()
	direct := connect(t, uri, false)
	proxy := faultproxy.New(t, uri)
	through := connect(t, proxy.URI(), retryWrites)
	name := "faultproxy_" + bson.NewObjectID().Hex()
	if os.Getenv("MONGODB_URI") == uri {
		t.Cleanup(func() { assert.NoError(t, direct.Database(name).Drop(context.Background())) })
	}
	s := &setup{proxy, through.Database(name).Collection("things"), direct.Database(name).Collection("things")}
	require.NoError(t, through.Ping(t.Context(), nil))
	return s
}

func connect(t *testing.T, uri string, retryWrites bool) *mongo.Client {
	t.Helper()
	return testserver.Connect(t, uri, func(o *options.ClientOptions) {
		o.SetRetryWrites(retryWrites).SetRetryReads(false).SetServerSelectionTimeout(5 * time.Second)
	})
}

func (s *setup) insert(ctx context.Context, id string) error {
	_, err := s.coll.InsertOne(ctx, bson.D{{Key: "_id", Value: id}})
	return err
}

// applied reports whether the server has the document, asked past the proxy.
func (s *setup) applied(t *testing.T, id string) bool {
	t.Helper()
	err := s.direct.FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false
	}
	require.NoError(t, err)
	return true
}

// settle waits until the driver has recovered from the loss of its connections. Until then,
// clearing its pool fails commands that the server applies.
func (s *setup) settle(t *testing.T) {
	t.Helper()
	good := 0
	require.Eventually(t, func() bool {
		if good++; s.coll.Database().Client().Ping(soon(t, time.Second), nil) != nil {
			good = 0
		}
		return good == 3
	}, 20*time.Second, 50*time.Millisecond, "the driver does not recover")
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
		require.FailNow(t, "not within 10 s: "+what)
	}
}

func is(cmd bson.Raw, id string) bool {
	return cmd.Lookup("documents", "0", "_id").StringValue() == id
}
