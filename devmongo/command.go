package devmongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// command runs one command on the admin database of exactly the server that the URI names, whatever
// its role.
func command(ctx context.Context, uri string, cmd bson.D) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetDirect(true).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return err
	}
	defer disconnect(client)
	return client.Database("admin").RunCommand(ctx, cmd).Err()
}

// awaitPrimary waits until the server, or a member of its set, takes writes.
func awaitPrimary(ctx context.Context, uri string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer disconnect(client)
	// A command goes to the primary; selecting one is what waits.
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err(); err != nil {
		return fmt.Errorf("no server that takes writes: %w", err)
	}
	return nil
}

// disconnect does not wait half a minute for a server that is gone to take note of ended sessions.
func disconnect(client *mongo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client.Disconnect(ctx)
}
