package doclock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testchild"
	"github.com/mongolock/mongolock/internal/testserver"
)

const childTTL = 2 * time.Second // a busy machine renews late

// A workplace is where a child works.
type workplace struct{ DB, Coll string }

// workUntilKilled claims a message, says which, and works at it until it is killed or
// its parent is gone.
func workUntilKilled(ctx context.Context, at workplace) error {
	conn, err := mongo.Connect(testserver.Dialling(os.Getenv("MONGODB_URI")))
	if err != nil {
		return err
	}
	locks, err := New[message](conn.Database(at.DB).Collection(at.Coll), With(mongolock.TTL(childTTL), mongolock.WithOwner("child")))
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
	child := testchild.Start(t, "worker", workplace{coll.Database().Name(), coll.Name()})
	var id int
	var token int64
	if said := child.Says(); must(fmt.Sscan(said, &id, &token))(t) != 2 || id != 0 {
		t.Fatalf("it says %q", said)
	}
	locks := locksOn[message](t, coll)
	_, err := locks.TryAcquire(t.Context(), ID(0))
	held, ok := errors.AsType[*mongolock.HeldError](err)
	if !ok || held.Holders[0].Owner != "child" {
		t.Fatalf("got %v", err)
	}
	if other := must(locks.TryClaim(t.Context(), pending, oldest))(t); other.Value.ID != 1 {
		t.Errorf("claimed %d while the other works at it", other.Value.ID)
	}
	time.Sleep(childTTL + childTTL/5) // it renews
	if _, err := locks.TryClaim(t.Context(), pending, oldest); !errors.Is(err, ErrNoWork) {
		t.Fatalf("claimed though it is alive: %v", err)
	}
	killed := time.Now()
	child.Kill()
	c := must(locks.Claim(t.Context(), pending, oldest))(t)
	if took := time.Since(killed); took > childTTL+2*time.Second {
		t.Errorf("claimed %v after the kill", took)
	}
	if c.Value.ID != 0 || c.Attempts() != 2 || c.Lease().Token() <= token {
		t.Errorf("message %d, attempt %d, token %d after %d", c.Value.ID, c.Attempts(), c.Lease().Token(), token)
	}
}
