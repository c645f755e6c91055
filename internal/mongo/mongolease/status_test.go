package mongolease

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/store"
)

// A crowded record counts how often all its holders are visited.
type crowded struct {
	Document
	visits *int
}

func (c crowded) Foreign() error { return nil }

func (c crowded) Holder(id string) (Holder, bool) { *c.visits++; return c.Document.Holder(id) }

func (c crowded) Marks() []mongobase.Mark { *c.visits++; return c.Document.Marks() }

func (c crowded) Status(key string, now time.Time) store.Status {
	return c.Seen(key, store.Shared, 0, now)
}

func TestTheStatusOfACrowdedKeyVisitsItsHoldersOnce(t *testing.T) {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	defer func() { _ = client.Disconnect(t.Context()) }()
	visits := 0
	seen := crowded{visits: &visits}
	for i := range 1000 {
		seen.Holders = append(seen.Holders, Holder{
			Holder: store.Holder{ID: fmt.Sprint(i), ExpireAt: time.Now().Add(time.Minute)}, Epoch: bson.NewObjectID(), TTL: time.Minute,
		})
	}
	steps := Steps[crowded, struct{}]{Base: mongobase.New(client.Database("d").Collection("c"), nil)}
	status := steps.Status("k", seen)
	assert.Len(t, status.Holders, 1000)
	assert.False(t, status.Holders[999].KnownBy.IsZero(), "it was written under an election of which nothing is known")
	assert.Equal(t, 1, visits)
}
