package doclock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
)

// The variables that make this program a worker of a test.
const (
	childColl = "DOCLOCK_TEST_COLLECTION" // database.collection
	childTTL  = 2 * time.Second           // a busy machine renews late
)

// workUntilKilled claims a message and works at it until it is killed, or its parent
// is gone. It says which.
func workUntilKilled() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	conn, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	if err != nil {
		panic(err)
	}
	db, name, _ := strings.Cut(os.Getenv(childColl), ".")
	locks, err := New[message](conn.Database(db).Collection(name), With(mongolock.TTL(childTTL), mongolock.WithOwner("child")))
	if err != nil {
		panic(err)
	}
	c, err := locks.Claim(context.Background(), pending, oldest)
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Value.ID, c.Lease().Token())
	<-c.Lease().Done()
	fmt.Println("lost")
	select {}
}

func TestAWorkerThatIsKilledLosesItsDocumentToAnotherProcess(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	messages(t, coll, 2)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childColl+"="+coll.Database().Name()+"."+coll.Name())
	cmd.Stderr = os.Stderr
	stdin := must(cmd.StdinPipe())(t)
	stdout := must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		t.Fatal("the child ended without a word")
	}
	var id int
	var token int64
	if _, err := fmt.Sscan(lines.Text(), &id, &token); err != nil || id != 0 {
		t.Fatalf("it says %q (%v)", lines.Text(), err)
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
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	c := must(locks.Claim(t.Context(), pending, oldest))(t)
	if took := time.Since(killed); took > childTTL+2*time.Second {
		t.Errorf("claimed %v after the kill", took)
	}
	if c.Value.ID != 0 || c.Attempts() != 2 || c.Lease().Token() <= token {
		t.Errorf("message %d, attempt %d, token %d after %d", c.Value.ID, c.Attempts(), c.Lease().Token(), token)
	}
}
