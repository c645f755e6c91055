package doclock

import (
	"testing"
	"time"

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
	return s.Client(t, trouble).Database("d").Collection("orders")
}
