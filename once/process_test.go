package once_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/once"
)

func TestMain(m *testing.M) {
	testserver.SkipExamples("^Example", "mongodb")
	testchild.Main(m, testchild.Roles{"pod": testchild.As(start)})
}

// A pod is what a child process is told.
type pod struct {
	DB, Name string
	TTL      time.Duration
	Hang     bool // the work does not end
}

// start is a process that has work to be done once. The work inserts a document.
func start(ctx context.Context, p pod) error {
	conn, err := mongo.Connect(testserver.Dialling(os.Getenv("MONGODB_URI")))
	if err != nil {
		return err
	}
	db := conn.Database(p.DB)
	fmt.Println("starts")
	err = once.Do(ctx, db.Collection("once"), name, func(ctx context.Context, run once.Run) error {
		if _, err := db.Collection("work").InsertOne(ctx, bson.M{"by": p.Name, "token": run.Token()}); err != nil {
			return err
		}
		fmt.Println("works")
		if p.Hang {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}, once.With(mongolock.TTL(p.TTL)), once.WithOwner(p.Name))
	fmt.Println("answer:", err)
	return nil
}

// database is an empty one of the server of the tests.
func database(t *testing.T) *mongo.Database {
	t.Helper()
	db := testserver.Connect(t, testserver.URI(t, "atomic")).Database("once_" + rand.Text()[:8])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = db.Drop(ctx)
	})
	return db
}

// untilAnswer is what a child says last.
func untilAnswer(c *testchild.Process) string {
	for {
		if said := c.Says(); said != "starts" && said != "works" {
			return said
		}
	}
}

func TestOneOfFiveProcessesRunsAndIsReplacedWhenItIsKilled(t *testing.T) {
	db := database(t)
	childTTL := pace.Of(2 * time.Second)
	first := testchild.Start(t, "pod", pod{db.Name(), "pod-0", childTTL, true})
	require.Equal(t, "starts", first.Says())
	require.Equal(t, "works", first.Says())
	var others []*testchild.Process
	for i := range 4 {
		others = append(others, testchild.Start(t, "pod", pod{db.Name(), fmt.Sprint("pod-", i+1), childTTL, false}))
	}
	for _, c := range others {
		require.Equal(t, "starts", c.Says())
	}
	time.Sleep(childTTL + childTTL/5) // the first renews its lease
	n, err := db.Collection("work").CountDocuments(t.Context(), bson.M{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "while the first lives")
	first.Kill()
	for _, c := range others {
		assert.Equal(t, "answer: <nil>", untilAnswer(c))
	}
	n, err = db.Collection("work").CountDocuments(t.Context(), bson.M{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, n, "what the killed one did, and one of the others")
	r, err := once.Look(t.Context(), db.Collection("once"), name)
	require.NoError(t, err)
	require.Len(t, r.Past, 2)
	assert.True(t, r.Done)
	assert.Equal(t, once.Died, r.Past[0].Outcome)
	assert.Equal(t, "pod-0", r.Past[0].Owner)
	assert.Equal(t, once.Succeeded, r.Past[1].Outcome)
	assert.Greater(t, r.Past[1].Token, r.Past[0].Token)
}
