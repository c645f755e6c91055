// Command lost imports a thousand rows, and stops when its lease is lost: broken by an operator
// (mongolock break), or not renewed in time, as when the database is out of reach.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
)

func main() {
	conn, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("MONGODB_URI"), "mongodb://localhost:27017")))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := mongolock.New(conn.Database("mongolock").Collection("locks"))
	if err != nil {
		log.Fatal(err)
	}
	err = mongolock.Do(context.Background(), locks, "import", load, mongolock.TTL(6*time.Second))
	switch {
	case errors.Is(err, mongolock.ErrBroken):
		fmt.Println("an operator has taken the lock away:", err)
	case errors.Is(err, mongolock.ErrLost):
		fmt.Println("the lease is lost, and another process may begin:", err)
	case err != nil:
		fmt.Println("the import failed, or never began:", err)
	}
	locks.Close()
	conn.Disconnect(context.Background())
	if err != nil {
		os.Exit(1)
	}
}

// load ends soon after ctx: with the lease, and before another process can be granted the key.
func load(ctx context.Context, _ *mongolock.Lease) error {
	fmt.Println("importing")
	for row := range 1000 {
		select {
		case <-time.After(50 * time.Millisecond): // the work on a row, given ctx
		case <-ctx.Done():
			return fmt.Errorf("stopped at row %d", row) // Do adds why
		}
	}
	return nil
}
