package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func findMongod(_ context.Context, s Config) (backend, error) {
	path, err := lookPath("mongod")
	switch {
	case err != nil:
		return nil, err
	case s.Shards > 0:
		return newCluster(path, s)
	case s.Members > 1:
		return newSet(path, s)
	}
	p, err := mongodProcess(path, mongodArgs(setName), 0, s)
	if err != nil {
		return nil, err
	}
	p.program.initiate = func(ctx context.Context, _, host string) error { return initiateSet(ctx, setName, false, host) }
	return p, nil
}

// mongodArgs are the arguments of a member of a set.
func mongodArgs(set string, more ...string) func(port int, dir string, auth bool) ([]string, error) {
	return func(port int, dir string, auth bool) ([]string, error) {
		data := filepath.Join(dir, "data")
		if err := os.MkdirAll(data, 0o700); err != nil {
			return nil, err
		}
		args := append([]string{
			"--bind_ip", "127.0.0.1",
			"--port", fmt.Sprint(port),
			"--dbpath", data,
		}, memberArgs(set, more...)...)
		if auth {
			key := filepath.Join(dir, "key") // members of a replica set with users authenticate with it
			if err := writeKey(key); err != nil {
				return nil, err
			}
			args = append(args, "--auth", "--keyFile", key)
		}
		return args, nil
	}
}

// memberArgs are those that a member has wherever it runs.
func memberArgs(set string, more ...string) []string {
	return append([]string{
		"--replSet", set,
		"--wiredTigerCacheSizeGB", "0.25",
		"--setParameter", "ttlMonitorSleepSecs=2", // a test of the sweep must not wait a minute
	}, more...)
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
