package servers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/devmongo/internal/lack"
)

// forEachKind runs a claim on every kind of server that can be started, and skips by name the kinds that
// this machine lacks.
func forEachKind(t *testing.T, claim func(*testing.T, Kind)) {
	for _, kind := range []Kind{Mongod, Secantus, Docker, FerretDB} {
		t.Run(string(kind), func(t *testing.T) {
			for _, f := range Find(t.Context()) {
				if f.Kind == kind && f.Err != nil {
					lack.Skip(t, string(kind), f.Err)
				}
			}
			claim(t, kind)
		})
	}
}

func start(t *testing.T, s Config) *Server {
	t.Helper()
	server, err := Start(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, server.Stop())
	})
	return server
}

func client(t *testing.T, uri string, opts ...*options.ClientOptions) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(append([]*options.ClientOptions{options.Client().ApplyURI(uri)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { disconnect(c) })
	return c
}

// collection returns a collection whose acknowledged writes survive a crash.
func collection(t *testing.T, uri string, opts ...*options.ClientOptions) *mongo.Collection {
	t.Helper()
	journaled := true
	return client(t, uri, opts...).Database("claims").Collection("things",
		options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled}))
}

func count(t *testing.T, c *mongo.Collection) int64 {
	t.Helper()
	n, err := c.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	return n
}
