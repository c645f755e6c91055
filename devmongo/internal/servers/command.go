package servers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// command runs a command on the admin database of the server that the URI names, whatever its role.
func command(ctx context.Context, uri string, cmd bson.D) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetDirect(true).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return err
	}
	defer disconnect(client)
	return client.Database("admin").RunCommand(ctx, cmd).Err()
}

// onPrimary runs a command on the admin database of a set's primary, or of the one server that there is.
func onPrimary(ctx context.Context, uri string, cmd bson.D) error {
	if !strings.Contains(uri, ",") {
		return command(ctx, uri, cmd)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return err
	}
	defer disconnect(client)
	return client.Database("admin").RunCommand(ctx, cmd).Err()
}

// awaitPrimary waits until the server, or a member of its set, takes writes.
func awaitPrimary(ctx context.Context, uri string) error {
	return findPrimary(ctx, options.Client().ApplyURI(uri).SetServerSelectionTimeout(startTimeout))
}

func findPrimary(ctx context.Context, at *options.ClientOptions) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := mongo.Connect(at)
	if err != nil {
		return err
	}
	defer disconnect(client)
	// A command goes to the primary; the driver waits until it can select one.
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err(); err != nil {
		return fmt.Errorf("no server accepts writes: %w", err)
	}
	return nil
}

// disconnect bounds the time for which the driver tries to end its sessions on a server that may be gone.
func disconnect(client *mongo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client.Disconnect(ctx)
}
