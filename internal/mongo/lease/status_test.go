package lease

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/cputime"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/store"
)

// A crowded record counts how often all its holders are visited.
type crowded struct {
	Document
	visits *int
}

func (c crowded) Foreign() error { return nil }

func (c crowded) Holder(id string) (Holder, bool) { *c.visits++; return c.Document.Holder(id) }

func (c crowded) Marks() []server.HolderState { *c.visits++; return c.Document.Marks() }

func (c crowded) Status(key string, now time.Time) store.Status {
	return c.Seen(key, store.Shared, now)
}

// withHolders returns a record with n holders.
func withHolders(n int) crowded {
	seen := crowded{visits: new(int)}
	for i := range n {
		seen.Holders = append(seen.Holders, Holder{
			Holder: store.Holder{ID: fmt.Sprintf("%026d", i*7919%n), ExpireAt: time.Now().Add(time.Hour)}, Epoch: bson.NewObjectID(), Beat: 1, TTL: time.Minute,
		})
	}
	return seen
}

// stepsOffline are the steps of a store without a server.
func stepsOffline(t *testing.T) *Steps[crowded, struct{}] {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return &Steps[crowded, struct{}]{Base: command.New(client.Database("d").Collection("c"), nil)}
}

func TestTheStatusOfACrowdedKeyVisitsItsHoldersOnce(t *testing.T) {
	seen := withHolders(1000)
	status := stepsOffline(t).Status("k", seen)
	assert.Len(t, status.Holders, 1000)
	assert.False(t, status.Holders[999].KnownBy.IsZero(), "it was written under an election of which nothing is known")
	assert.Equal(t, 1, *seen.visits)
}

// What a claim does with the image of a key that others share: it judges, and shows, its holders.
// They may cost hardly more together than as the holders of many keys.
func TestThousandsOfHoldersOfAKeyAreJudgedInTheTimeOfAsManyOnManyKeys(t *testing.T) {
	const few = 10
	many := fewer.Of(10_000)
	took := func(keys, holders int) time.Duration {
		seen, best := Image[crowded]{Record: withHolders(holders)}, time.Hour
		for range 3 {
			steps, before := stepsOffline(t), cputime.Used(t)
			for looks := range 2 { // the second compares with the first
				for i := range keys {
					c := &Claim{Claim: store.Claim{Ref: store.Ref{Key: fmt.Sprint("k", i)}}}
					over, err := steps.Judge(t.Context(), c, seen)
					require.NoError(t, err)
					require.Len(t, steps.Remaining(c.Key, seen.Record, over).Holders, holders, "look %d", looks)
				}
			}
			best = min(best, cputime.Used(t)-before)
		}
		return best
	}
	apart, together := took(many/few, few), took(1, many)
	t.Logf("%d keys with %d holders: %v; one key with %d: %v", many/few, few, apart, many, together)
	assert.Less(t, together, 10*apart)
}
