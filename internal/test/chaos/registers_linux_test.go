package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// makeRegisters inserts what the workers fence their writes in: before one of them runs, as a write that
// finds no document looks like one that was refused.
func (c *cluster) makeRegisters() {
	for _, key := range c.orders.Keys {
		if key == document {
			continue
		}
		_, err := c.direct.Database(c.orders.DB).Collection(registerColl).InsertOne(c.t.Context(), bson.D{{Key: "_id", Value: key}})
		require.NoError(c.t, err)
	}
}

// watchRegisters reads the fenced registers again and again until stop, which returns what
// it read. On a set all reads are linearizable, else majority reads of one causal session:
// either way they never go back in time. (A linearizable read can crash a MongoDB 4.4 that
// steps down, so there it is the session.)
func watchRegisters(t *testing.T, c *cluster) (stop func() []history.Event) {
	db := c.direct.Database(c.orders.DB)
	concern := options.Collection().SetReadConcern(readconcern.Majority())
	linearizable := len(c.server.Members) > 1 && testserver.Has("v50")
	if linearizable {
		concern.SetReadConcern(readconcern.Linearizable())
	}
	registers := db.Collection(registerColl, concern)
	colls := map[string]*mongo.Collection{document: db.Collection(documentColl, concern)}
	for _, key := range c.orders.Keys {
		if key == document {
			continue
		}
		colls[key] = registers
	}
	session, err := c.direct.StartSession(options.Session().SetCausalConsistency(!linearizable))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(mongo.NewSessionContext(t.Context(), session))
	seen := make(chan []history.Event)
	go func() {
		var events []history.Event
		for ; ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
			for _, key := range c.orders.Keys {
				within, done := context.WithTimeout(ctx, time.Second)
				doc, err := colls[key].FindOne(within, bson.D{{Key: "_id", Value: key}}).Raw()
				done()
				if token, ok := doc.Lookup("_fence").Int64OK(); err == nil && ok {
					events = append(events, history.Event{At: uptime(), Kind: history.Register, Key: key, Token: token})
				}
			}
		}
		seen <- events
	}()
	return func() []history.Event {
		cancel()
		return <-seen
	}
}
