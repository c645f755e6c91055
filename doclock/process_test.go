package doclock

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// A target is the collection that a child process works on, and the TTL of its claims.
type target struct {
	DB, Coll string
	TTL      time.Duration
}

// workUntilKilled claims a message, prints its _id and token, and works at it until it is
// killed or its parent is gone.
func workUntilKilled(ctx context.Context, at target) error {
	conn, err := mongo.Connect(testserver.Dialling(os.Getenv("MONGODB_URI")))
	if err != nil {
		return err
	}
	locks, err := New[message](conn.Database(at.DB).Collection(at.Coll), With(mongolock.TTL(at.TTL)), WithOwner("child"))
	if err != nil {
		return err
	}
	c, err := locks.Claim(ctx, pending, oldest)
	if err != nil {
		return err
	}
	fmt.Println(c.Value.ID, c.Lease().Token())
	select {
	case <-c.Lease().Done():
		return c.Lease().Err()
	case <-ctx.Done():
		return nil
	}
}

func TestAWorkerThatIsKilledLosesItsDocumentToAnotherProcess(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	messages(t, coll, 2)
	childTTL := pace.Of(2 * time.Second)
	child := testchild.Start(t, "worker", target{coll.Database().Name(), coll.Name(), childTTL})
	var id int
	var token int64
	said := child.Says()
	_, err := fmt.Sscan(said, &id, &token)
	require.NoError(t, err, "it says %q", said)
	require.Equal(t, 0, id)
	locks := locksOn[message](t, coll)
	_, err = locks.TryAcquire(t.Context(), ID(0))
	var held *mongolock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "child", held.Holders[0].Owner)
	other := must(locks.TryClaim(t.Context(), pending, oldest))(t)
	assert.Equal(t, 1, other.Value.ID, "while the child works at 0")
	time.Sleep(childTTL + childTTL/5) // the child renews its lease
	_, err = locks.TryClaim(t.Context(), pending, oldest)
	require.ErrorIs(t, err, ErrNoWork, "claimed though the child is alive")
	killed := time.Now()
	child.Kill()
	c := must(locks.Claim(t.Context(), pending, oldest))(t)
	most := childTTL + pace.Of(2*time.Second)
	if can("router") { // whoever waits has to see a TTL of silence
		most += childTTL
	}
	assert.LessOrEqual(t, time.Since(killed), most)
	assert.Equal(t, 0, c.Value.ID)
	assert.Equal(t, 2, c.Attempts())
	assert.Greater(t, c.Lease().Token(), token)
}
