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

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/cputime"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/store"
)

// withHolders returns a lock with n holders.
func withHolders(n int) (d Document) {
	d.Mode = store.Shared
	for i := range n {
		d.Holders = append(d.Holders, Holder{
			Holder: store.Holder{ID: fmt.Sprintf("%026d", i*7919%n), ExpireAt: time.Now().Add(time.Hour)}, Epoch: bson.NewObjectID(), Beat: 1, TTL: time.Minute,
		})
	}
	return d
}

// stepsOffline are the steps of a store without a server.
func stepsOffline(t *testing.T) *Steps {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return &Steps{Coll: server.New(client.Database("d").Collection("c"), nil)}
}

func TestAHolderOfWhoseElectionNothingIsKnownIsKnownToBeOverLater(t *testing.T) {
	status := stepsOffline(t).Status("k", withHolders(1000))
	assert.Len(t, status.Holders, 1000)
	assert.False(t, status.Holders[999].KnownBy.IsZero())
}

// What a claim does with the image of a key that others share: it judges, and shows, its holders.
// They may cost hardly more together than as the holders of many keys.
func TestThousandsOfHoldersOfAKeyAreJudgedInTheTimeOfAsManyOnManyKeys(t *testing.T) {
	const few = 10
	many := fewer.Of(10_000)
	took := func(keys, holders int) time.Duration {
		seen, best := Image{Document: withHolders(holders)}, time.Hour
		for range 3 {
			steps, before := stepsOffline(t), cputime.Used(t)
			for looks := range 2 { // the second compares with the first
				for i := range keys {
					c := &Claim{Claim: store.Claim{Ref: store.Ref{Key: fmt.Sprint("k", i)}}, Steps: steps}
					left, _, err := c.Judge(t.Context(), seen)
					require.NoError(t, err)
					require.Len(t, left.Holders, holders, "look %d", looks)
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

func FuzzTheReplyToAClaimOfAnyShapeIsRead(f *testing.F) {
	layout := Layout{Mark: "mongolock"}
	f.Add([]byte{5, 0, 0, 0})
	for _, d := range []bson.D{
		{{Key: "mongolock", Value: 1}, {Key: "holders", Value: bson.D{{Key: "ID", Value: 1}}}, {Key: "line", Value: bson.A{"x:a:1"}}},
		{{Key: "holders", Value: bson.A{1}}, {Key: "line", Value: 1}, {Key: "stamp", Value: "s"}},
	} {
		raw, err := bson.Marshal(d)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if d := layout.readGrant(raw, "ID"); len(d.Holders) > 0 && !server.Is(bson.Raw(raw).Lookup("mongolock"), Shape) {
			t.Errorf("a foreign document is taken for a grant: %+v", d)
		}
	})
}
