package doclock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/test/mongo/docset"
)

// A replicaSet is a set in memory, for tests in virtual time.
type replicaSet struct{ *docset.Set }

func newReplicaSet(ahead time.Duration) *replicaSet { return &replicaSet{docset.New(ahead)} }

// collection is the collection that all tests on the set use, through a client of its own.
func (s *replicaSet) collection(t *testing.T) *mongo.Collection { return s.over(t, docset.None) }

// over is collection through a network that is in trouble.
func (s *replicaSet) over(t *testing.T, trouble docset.Trouble) *mongo.Collection {
	t.Helper()
	client, err := s.Client(trouble)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client.Database("d").Collection("orders")
}
