package devmongo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func findMongod(_ context.Context, s settings) (backend, error) {
	path, err := lookPath("mongod")
	if err != nil {
		return nil, err
	}
	return newProcess(program{path: path, args: mongodArgs, listening: "Waiting for connections", initiate: initiate}, s), nil
}

func mongodArgs(port int, dir string, auth bool) ([]string, error) {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	args := []string{
		"--replSet", "devmongo",
		"--bind_ip", "127.0.0.1",
		"--port", fmt.Sprint(port),
		"--dbpath", data,
		"--wiredTigerCacheSizeGB", "0.25",
		"--setParameter", "ttlMonitorSleepSecs=2", // a test of the sweep must not wait a minute
	}
	if auth {
		key := filepath.Join(dir, "key") // members of a replica set with users authenticate with it
		if err := writeKey(key); err != nil {
			return nil, err
		}
		args = append(args, "--auth", "--keyFile", key)
	}
	return args, nil
}

func writeKey(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if errors.Is(err, os.ErrExist) {
		return nil // from before a restart
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(rand.Text())
	return errors.Join(err, f.Close())
}

// initiate makes the node a replica set of one, unless its data holds one already.
func initiate(ctx context.Context, uri, host string) error {
	err := command(ctx, uri, bson.D{{Key: "replSetInitiate", Value: bson.D{
		{Key: "_id", Value: "devmongo"},
		{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: host}}}},
	}}})
	var refused mongo.CommandError
	if errors.As(err, &refused) && refused.HasErrorCode(alreadyInitialized) {
		// The data was used on another port, and the replica set still has the old address.
		return command(ctx, uri, bson.D{
			{Key: "replSetReconfig", Value: bson.D{
				{Key: "_id", Value: "devmongo"},
				{Key: "version", Value: 1 << 20},
				{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: host}}}},
			}},
			{Key: "force", Value: true},
		})
	}
	return err
}

const alreadyInitialized = 23
