//go:build !devmongo_light

package servers

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

func TestThroughTheGateOneTakeoverWins(t *testing.T) {
	server := start(t, Config{Kind: FerretDB})
	for round, winners := range takeovers(t, server.URI()) {
		if winners != 1 {
			t.Errorf("round %d: %d winners", round, winners)
		}
	}
}

// The control of the claim above: without the gate the same rounds have several winners.
func TestControlWithoutTheGateSeveralTakeoversWin(t *testing.T) {
	server := start(t, Config{Kind: FerretDB})
	wrong := 0
	for _, winners := range takeovers(t, "mongodb://"+server.backend.(*ferret).direct+"/") {
		if winners != 1 {
			wrong++
		}
	}
	t.Logf("%d rounds had not exactly one winner", wrong)
	if wrong == 0 {
		t.Error("every round had one winner: either the gate is not needed, or the test shows nothing")
	}
}

// takeovers lets several clients, each with a connection of its own, update one document at the same
// moment, a hundred times, and returns the number of winners of each round.
func takeovers(t *testing.T, uri string) (winners []int) {
	const clients, rounds = 8, 100
	colls := make([]*mongo.Collection, clients)
	for i := range colls {
		colls[i] = collection(t, uri)
		require.NoError(t, colls[i].Database().Client().Ping(t.Context(), nil))
	}
	for round := range rounds {
		if _, err := colls[0].InsertOne(t.Context(), bson.D{{Key: "_id", Value: round}, {Key: "free", Value: true}}); err != nil {
			t.Fatal(err)
		}
		won := make(chan bool, clients)
		begin := make(chan struct{})
		for _, c := range colls {
			go func() {
				<-begin
				result, err := c.UpdateOne(t.Context(),
					bson.D{{Key: "_id", Value: round}, {Key: "free", Value: true}},
					bson.D{{Key: "$set", Value: bson.D{{Key: "free", Value: false}}}})
				won <- err == nil && result.MatchedCount == 1
			}()
		}
		close(begin)
		n := 0
		for range clients {
			if <-won {
				n++
			}
		}
		winners = append(winners, n)
	}
	return winners
}

// FerretDB ends a read after its maxTimeMS. With modernc.org/sqlite before v1.40.1 its statement stayed
// open: from then on that connection of the pool refused writes or read an old state.
func TestAReadThatTimesOutAffectsNoOtherCommand(t *testing.T) {
	server := start(t, Config{Kind: FerretDB})
	coll := collection(t, server.URI())
	if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}}); err != nil {
		t.Fatal(err)
	}
	byID := bson.D{{Key: "_id", Value: 1}}
	running, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	ungated := client(t, "mongodb://"+server.backend.(*ferret).direct+"/").Database("claims") // through the gate too few reads time out
	var cut atomic.Int64
	var readers sync.WaitGroup
	for range 32 {
		readers.Go(func() {
			for running.Err() == nil {
				err := ungated.RunCommand(t.Context(), bson.D{
					{Key: "find", Value: coll.Name()}, {Key: "filter", Value: byID}, {Key: "maxTimeMS", Value: 1},
				}).Err()
				if err != nil {
					cut.Add(1)
				}
			}
		})
	}
	defer readers.Wait()
	for n := 1; running.Err() == nil; n++ {
		set := bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}}
		if _, err := coll.UpdateOne(t.Context(), byID, set); err != nil {
			t.Fatalf("write %d, after %d reads timed out: %v", n, cut.Load(), err)
		}
		var doc struct{ N int }
		if err := coll.FindOne(t.Context(), byID).Decode(&doc); err != nil || doc.N != n {
			t.Fatalf("wrote %d and read %d, after %d reads timed out: %v", n, doc.N, cut.Load(), err)
		}
	}
	t.Logf("%d reads timed out", cut.Load())
}

func TestAConnectionStaysUsableAfterAnUnacknowledgedWrite(t *testing.T) {
	server := start(t, Config{Kind: FerretDB})
	c := client(t, server.URI(), options.Client().SetMaxPoolSize(1)).Database("claims")
	unacknowledged := c.Collection("things", options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	const writes = 20
	for i := range writes {
		if _, err := unacknowledged.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, c.Collection("things")); n != writes {
		t.Errorf("%d documents, not %d", n, writes)
	}
}
